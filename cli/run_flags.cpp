// Flags that train, eval, generate and bench share.
#include "run_flags.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <ppengine/base/error.hpp>
#include <ppengine/schedules/csv.hpp>

namespace ppengine::cli {

void ParallelFlags::add(CLI::App& command) {
  const char* group = "Parallel";
  command.add_option("--pp", pp, "Ranks of the pipeline (default 1)")->check(CLI::Range(1, 4096))->group(group);
  command.add_option("--dp", dp, "Data-parallel copies (default 1)")->check(CLI::Range(1, 4096))->group(group);
  command.add_option("--tp", tp, "Tensor-parallel ranks (default 1)")->check(CLI::Range(1, 4096))->group(group);
  command.add_option("--stages", stages, "Stages of the pipeline (default: --pp, or twice that for V schedules)")->check(CLI::Range(1, 65535))->group(group);
  auto* named = command.add_option("--schedule", schedule, "Schedule by name (default 1f1b); 'ppengine plan --help' lists them")->group(group);
  command.add_option("--plan", plan, "Plan file (CSV) in place of a schedule")->type_name("FILE")->excludes(named)->group(group);
  command.add_option("--microbatches", microbatches, "Microbatches of a step and data-parallel rank")->check(CLI::Range(1, 1 << 20))->group(group);
  command.add_option("--split", split, "Modules at which a stage begins, in order (default: balanced by cost)")->delimiter(',')->type_name("FQN,...")->group(group);
  command.add_option("--balance", balance, "Costs that balance the stages: estimated from arithmetic, or measured in a short warm-up of training")
      ->check(CLI::IsMember({"estimated", "measured"}))
      ->group(group);
  command.add_flag("--shard", shard, "Split parameters, gradients and optimizer state over the data-parallel ranks")->group(group);
  command.add_option("--dtype", dtype, "Type of activations and weights in compute")->check(CLI::IsMember({"f32", "bf16"}))->group(group);
  RankFlags::add(command, group);
}

int ParallelFlags::ranks() const {
  const std::int64_t all = std::int64_t{pp} * dp * tp;
  if (all > 65536) throw ConfigError(fmt::format("--pp {} x --dp {} x --tp {} is {} ranks: at most 65536 are supported", pp, dp, tp, all));
  return static_cast<int>(all);
}

engine::ParallelOptions ParallelFlags::options(std::int64_t batch_size) const {
  if (shard) throw ConfigError("--shard: sharding is not there yet; use --dp without it");
  engine::ParallelOptions result;
  result.pipeline = pp;
  result.data = dp;
  result.tensor = tp;
  result.stages = stages;
  if (!schedule.empty()) result.schedule = schedule;
  result.split = split;
  result.measure = balance == "measured";
  result.type = dtype == "bf16" ? ops::Type::bf16 : ops::Type::f32;
  if (!plan.empty()) {
    result.plan = schedules::load_plan(plan, microbatches);
    result.microbatches = result.plan->microbatches;
    if (result.stages == 0) result.stages = result.plan->stages;
  } else {
    // Twice as many as ranks keep every schedule's rules; fewer where the batch has fewer sequences.
    result.microbatches = microbatches > 0 ? microbatches : pp == 1 ? 1 : 2 * pp;
    if (microbatches == 0 && batch_size > 0) result.microbatches = static_cast<int>(std::clamp<std::int64_t>(batch_size / dp, 1, result.microbatches));
    if (!split.empty() && result.stages == 0) result.stages = static_cast<int>(split.size()) + 1;
  }
  result.device = open_device();
  return result;
}

void DataFlags::add(CLI::App& command, bool required) {
  const char* group = "Data";
  auto* data = command.add_option("--data", choice.data, "FILE.npy, FILE.bin, FILE.txt, task:addition or synthetic")->type_name("DATA")->group(group);
  if (required) data->required();
  command.add_option("--seq-len", choice.sequence_length, "Tokens of a sequence (default: the model's; 2-D files set it)")->check(CLI::Range(1, 1 << 24))->group(group);
  command.add_option("--batch-size", choice.batch_size, "Sequences per step over all ranks (default: one per microbatch)")->check(CLI::Range(1, 1 << 24))->group(group);
  command.add_option("--order", order, "sequential or shuffled")->check(CLI::IsMember({"sequential", "shuffled"}))->group(group);
  command.add_option("--seed", choice.seed, "Seed of weights, order, made-up data and dropout (default 0)")->group(group);
}

models::DataChoice DataFlags::get() const {
  models::DataChoice result = choice;
  result.order = models::parse_data_order(order);
  return result;
}

}  // namespace ppengine::cli
