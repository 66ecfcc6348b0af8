// Flags that train, eval, generate and bench share.
#include "flags/run_flags.hpp"

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/ops/device/precision.hpp>
#include <ppengine/schedules/csv.hpp>

#include "output/plural.hpp"

namespace ppengine::cli {

void ParallelFlags::add(CLI::App& command, Use use) {
  trains_ = use != Use::inference;
  const char* group = "Parallel";
  pp_ = command.add_option("--pp", pp, "Ranks of the pipeline (default 1)")->check(CLI::Range(1, 4096))->group(group);
  if (use != Use::inference) command.add_option("--dp", dp, "Data-parallel copies (default 1)")->check(CLI::Range(1, 4096))->group(group);
  command.add_option("--tp", tp, "Tensor-parallel ranks (default 1)")->check(CLI::Range(1, 4096))->group(group);
  if (use != Use::inference)
    command
        .add_flag("--sequence-parallel", sequence_parallel,
                  "Tensor-parallel ranks divide the tokens too, for norms and residuals: less memory")
        ->group(group);
  command
      .add_option("--stages", stages,
                  use == Use::inference ? "Stages of the pipeline (default: --pp)"
                                        : "Stages of the pipeline (default: --pp, or twice that for interleaved and V schedules)")
      ->check(CLI::Range(1, 65535))
      ->group(group);
  if (use != Use::inference) add_plan_flags(command, group);
  command.add_option("--split", split, "Modules at which a stage begins, in order (default: balanced by cost)")
      ->delimiter(',')
      ->type_name("FQN,...")
      ->group(group);
  if (use == Use::training)
    command
        .add_option("--balance", balance,
                    "Costs that balance the stages: measured in a short warm-up, estimated from arithmetic, or auto (default): "
                    "measured where results have the same bits for any split, that is without --shard and for --dp 1 or 2")
        ->check(CLI::IsMember({"auto", "estimated", "measured"}))
        ->group(group);
  if (use != Use::inference) add_sharding_flags(command, group);
  command
      .add_option("--dtype", dtype,
                  use == Use::inference ? "Type of activations and weights in compute (default f32)"
                                        : "Type of activations and weights in compute (default f32 on CPUs, bf16 on GPUs that have it)")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->group(group);
  RankFlags::add(command, group);
}

void ParallelFlags::add_plan_flags(CLI::App& command, const char* group) {
  auto* named =
      command.add_option("--schedule", schedule, "Schedule by name (default 1f1b); 'ppengine plan --help' lists them")->group(group);
  command.add_option("--plan", plan, "Plan file (CSV) in place of a schedule; its rows are the ranks of the pipeline")
      ->type_name("FILE")
      ->excludes(named)
      ->group(group);
  command.add_option("--microbatches", microbatches, "Microbatches of a step and data-parallel rank (default: two per rank)")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
}

void ParallelFlags::add_sharding_flags(CLI::App& command, const char* group) {
  command.add_flag("--shard", shard, "Split parameters, gradients and optimizer state over the data-parallel ranks")->group(group);
  command
      .add_option("--active-stages", active_stages,
                  "With --shard: stages of a rank that are gathered at the same time, at most (default 3)")
      ->check(CLI::Range(1, 65535))
      ->group(group);
}

int ParallelFlags::ranks() const {
  const std::int64_t all = std::int64_t{pp} * dp * tp;
  if (all > 65536) throw ConfigError(fmt::format("--pp {} x --dp {} x --tp {} is {} ranks: at most 65536 are supported", pp, dp, tp, all));
  return static_cast<int>(all);
}

engine::ParallelOptions ParallelFlags::options(std::int64_t batch_size) {
  engine::ParallelOptions result;
  if (!plan.empty()) {
    result.plan = schedules::load_plan(plan, microbatches);
    if (pp_ && pp_->count() == 0) pp = result.plan->ranks;
    if (pp != result.plan->ranks)
      throw ConfigError(fmt::format("{} has {}, and --pp is {}: leave --pp out", plan, plural(result.plan->ranks, "row"), pp));
  }
  result.pipeline = pp;
  result.data = dp;
  result.tensor = tp;
  result.sequence_parallel = sequence_parallel;
  if (sequence_parallel && tp == 1)
    throw ConfigError("--sequence-parallel goes with --tp: tensor-parallel ranks divide the tokens; give --tp 2 or more");
  result.stages = stages;
  if (!schedule.empty()) result.schedule = schedule;
  result.split = split;
  if (balance != "auto") result.balance = balance == "measured" ? engine::Balance::measured : engine::Balance::estimated;
  result.shard = shard;
  result.active_stages = active_stages;
  result.type = dtype == "bf16" ? ops::Type::bf16 : ops::Type::f32;
  if (result.plan) {
    result.microbatches = result.plan->microbatches;
    if (result.stages == 0) result.stages = result.plan->stages;
  } else {
    // Twice as many as ranks keep every schedule's rules; fewer where the batch has fewer sequences.
    result.microbatches = microbatches > 0 ? microbatches : pp == 1 ? 1 : 2 * pp;
    if (microbatches == 0 && batch_size > 0)
      result.microbatches = static_cast<int>(std::clamp<std::int64_t>(batch_size / dp, 1, result.microbatches));
    if (!split.empty() && result.stages == 0) result.stages = static_cast<int>(split.size()) + 1;
  }
  result.devices = open_devices(ranks());
  if (!result.devices.empty()) result.device = result.devices.front();
  if (dtype.empty() && trains_ && result.device) result.type = ops::default_type(result.device->info());
  result.type_given = !dtype.empty();
  if (result.device && result.type == ops::Type::bf16 && !result.device->info().native_bf16)
    log::warning(fmt::format("--dtype bf16: {} emulates it, which is slower than f32 (memory and messages still halve)",
                             result.device->info().name));
  return result;
}

void ProgramFlags::add(CLI::App& command, bool trains) {
  const char* group = "Programs (FILE.pt2)";
  command
      .add_option("--loss", choice.loss,
                  "cross_entropy, mse, bce (with logits) or output: the program's own scalar (default where it has one)")
      ->check(CLI::IsMember({"cross_entropy", "mse", "bce", "output"}))
      ->group(group);
  command.add_option("--class-dim", choice.class_dim, "Dimension of the classes for cross_entropy (default: the last)")
      ->check(CLI::Range(-16, 16))
      ->group(group);
  if (trains)
    command.add_flag("--sync-batchnorm", choice.sync_batchnorm, "Batch norm's statistics over all data-parallel ranks")->group(group);
}

void WeightFlags::add(CLI::App& command, const char* unsaid) {
  const char* group_name = "Weights";
  command.add_option("--weights", format, fmt::format("How weights are stored: f32, bf16, int8 or int4 (default: {})", unsaid))
      ->check(CLI::IsMember({"f32", "bf16", "int8", "int4"}))
      ->group(group_name);
  command.add_option("--weight-group", group, "Inputs that share a scale (default for int8: all inputs of an output; for int4: 32)")
      ->check(CLI::Range(0, 1 << 20))
      ->group(group_name);
}

void CacheFlags::add(CLI::App& command, const std::string& group) {
  command
      .add_option(
          "--cache-type", type,
          "How keys and values are stored: as computed (f32), or int8, with a scale per head and token: a quarter of the memory, on "
          "CPUs (default f32)")
      ->check(CLI::IsMember({"f32", "int8"}))
      ->group(group);
  command
      .add_option("--cache-memory", mebibytes,
                  "MiB that keys and values may take on a rank; sequences wait for each other where that is short (default: as much as all "
                  "can need)")
      ->type_name("MIB")
      ->check(CLI::Range(1L, 1L << 40))
      ->group(group);
}

void GradientFlags::add(CLI::App& command) {
  const char* group = "Data parallel";
  command
      .add_option("--grad-hook", hook,
                  "How gradients are summed: allreduce (default), in bf16 or fp16, as factors (powersgd), or not at all (none)")
      ->check(CLI::IsMember(engine::hook_names()))
      ->group(group);
  command.add_option("--powersgd-rank", powersgd_rank, "Columns of PowerSGD's factors (default 4)")
      ->check(CLI::Range(1, 4096))
      ->group(group);
  command.add_option("--powersgd-warmup", powersgd_warmup, "Steps before PowerSGD begins (default 10)")
      ->check(CLI::Range(0, 1 << 30))
      ->group(group);
  command
      .add_option("--bucket-mb", buckets,
                  "MiB of gradients that are reduced together; several: for the first buckets, the last one for the rest (default 1,25)")
      ->delimiter(',')
      ->check(CLI::Range(1e-6, 1e6))
      ->group(group);
  command.add_flag("--optimizer-in-backward", in_backward, "Update each bucket as soon as it is reduced; not with --grad-clip")
      ->group(group);
}

void GradientFlags::apply(engine::TrainerOptions& options) const {
  options.hook = {hook, powersgd_rank, powersgd_warmup, options.seed};
  for (const double size : buckets) options.buckets.caps.push_back(static_cast<std::size_t>(size * (1 << 20)));
  options.optimizer_in_backward = in_backward;
}

void DataFlags::add(CLI::App& command, bool required) {
  const char* group = "Data";
  auto* data =
      command
          .add_option(
              "--data", choice.data,
              "FILE.npy, FILE.bin, FILE.txt, FILE.jsonl, task:addition or synthetic; for a program FILE.safetensors or a folder of them")
          ->type_name("DATA")
          ->group(group);
  if (required) data->required();
  command.add_option("--seq-len", choice.sequence_length, "Tokens of a sequence (default: the model's; 2-D files set it)")
      ->check(CLI::Range(1, 1 << 24))
      ->group(group);
  command.add_option("--batch-size", choice.batch_size, "Sequences per step over all ranks (default: one per microbatch)")
      ->check(CLI::Range(1, 1 << 24))
      ->group(group);
  command.add_flag("--pack", choice.pack, "FILE.jsonl: several documents in a sequence, each attending to itself alone, positions from 0")
      ->group(group);
  command.add_option("--lengths", lengths, "FILE.jsonl: fixed, or variable: microbatches as long as their longest example")
      ->check(CLI::IsMember({"fixed", "variable"}))
      ->group(group);
  command.add_option("--order", order, "Order of the data's sequences (default sequential)")
      ->check(CLI::IsMember({"sequential", "shuffled"}))
      ->group(group);
  command.add_option("--seed", choice.seed, "Seed of weights, order, made-up data and dropout (default 0)")->group(group);
}

runs::DataChoice DataFlags::get() const {
  runs::DataChoice result = choice;
  result.order = models::parse_data_order(order);
  result.variable_lengths = lengths == "variable";
  return result;
}

}  // namespace ppengine::cli
