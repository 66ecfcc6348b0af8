// ppengine inspect: a model's parameters, where stages begin, and the memory that each rank needs, before anything is loaded.
#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <ppengine/base/error.hpp>
#include <ppengine/models/files/checksums.hpp>
#include <ppengine/models/import/program.hpp>
#include <ppengine/runs/inspection.hpp>

#include "commands.hpp"
#include "output/inspect_program.hpp"
#include "output/plural.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

struct InspectFlags {
  std::string model, schedule, dtype = "f32";
  int pp = 0, tp = 1, dp = 1, stages = 0, microbatches = 0;
  bool shard = false, sequence_parallel = false, summary = false;
  std::vector<std::string> split;
  runs::InspectionOptions options;
  bool json = false, verify = false;

  void run();
  void run_verify();
};

std::string mebibytes(std::int64_t bytes) { return fmt::format("{:.1f}", double(bytes) / (1 << 20)); }

void print_json(const runs::Inspection& model, bool summary) {
  nlohmann::json out{{"family", model.family},
                     {"parameter_count", model.parameters},
                     {"stored_bytes", model.stored_bytes},
                     {"sequence_length", model.sequence_length}};
  for (const auto& one : summary ? std::vector<runs::InspectedParameter>() : model.list) {
    nlohmann::json entry{
        {"name", one.name}, {"shape", one.shape}, {"elements", one.elements}, {"stage", one.stages.front()}, {"stages", one.stages}};
    entry["type"] = one.type.empty() ? nlohmann::json() : nlohmann::json(one.type);
    out["parameters"].push_back(std::move(entry));
  }
  for (const auto& stage : model.stages)
    out["stages"].push_back(
        {{"rank", stage.rank}, {"first_module", stage.first_module}, {"last_module", stage.last_module}, {"parameters", stage.parameters}});
  for (const auto& rank : model.ranks)
    out["ranks"].push_back(
        {{"stages", rank.stages},
         {"parameters", rank.parameters},
         {"training_bytes", rank.training()},
         {"training",
          {{"weights", rank.weights}, {"gradients", rank.gradients}, {"optimizer", rank.optimizer}, {"activations", rank.activations}}},
         {"inference_bytes", rank.inference()},
         {"inference", {{"weights", rank.inference_weights}, {"cache", rank.cache}}}});
  print_result("{}\n", out.dump());
}

void print_summary(const InspectFlags& flags, const runs::Inspection& model) {
  print_result("{}: {}, {}, {}\n", model.family, plural(model.parameters, "parameter"), plural(std::int64_t(model.list.size()), "tensor"),
               model.stored_bytes > 0 ? mebibytes(model.stored_bytes) + " MiB in files" : "no files (a preset has random weights)");
  const auto& parallel = flags.options.parallel;
  if (parallel.tensor > 1 || parallel.data > 1)
    print_result("of each of {} x {}{}\n", plural(parallel.tensor, "tensor-parallel rank"), plural(parallel.data, "data-parallel rank"),
                 parallel.sharded() ? " that keep a part each (--shard)" : "");
  print_result("\n{:<7}{:<6}{:>14}  modules\n", "stage", "rank", "parameters");
  for (std::size_t s = 0; s < model.stages.size(); ++s)
    print_result("{:<7}{:<6}{:>14}  {} to {}\n", s, model.stages[s].rank, model.stages[s].parameters, model.stages[s].first_module,
                 model.stages[s].last_module);
  print_result("\nMiB with sequences of {}; activations and cache are estimates without the kernels' own memory\n",
               plural(model.sequence_length, "token"));
  print_result("{:<6}{:>10}{:>11}{:>11}{:>13}{:>16}{:>17}{:>9}\n", "rank", "weights", "gradients", "optimizer", "activations",
               "= for training", "for inference", "cache");
  for (std::size_t r = 0; r < model.ranks.size(); ++r) {
    const auto& rank = model.ranks[r];
    print_result("{:<6}{:>10}{:>11}{:>11}{:>13}{:>16}{:>17}{:>9}\n", r, mebibytes(rank.weights), mebibytes(rank.gradients),
                 mebibytes(rank.optimizer), mebibytes(rank.activations), mebibytes(rank.training()), mebibytes(rank.inference()),
                 mebibytes(rank.cache));
  }
}

void print_parameters(const runs::Inspection& model) {
  std::size_t width = 9, shape = 16;
  const auto shape_text = [](const auto& one) { return fmt::format("[{}]", fmt::join(one.shape, ", ")); };
  for (const auto& one : model.list) width = std::max(width, one.name.size()), shape = std::max(shape, shape_text(one).size() + 2);
  print_result("\n{:<{}}  {:<{}}{:<6}{:>14}  stage\n", "parameter", width, "shape", shape, "type", "elements");
  for (const auto& one : model.list)
    print_result("{:<{}}  {:<{}}{:<6}{:>14}  {}\n", one.name, width, shape_text(one), shape, one.type.empty() ? "-" : one.type,
                 one.elements, fmt::join(one.stages, ", "));
}

// Reads every byte of a saved folder.
void InspectFlags::run_verify() {
  const models::Verification found = models::verify_folder(model);
  if (json)
    print_result(
        "{}\n",
        nlohmann::json{{"verified", found.damaged.empty()}, {"tensors", found.tensors}, {"files", found.files}, {"damaged", found.damaged}}
            .dump());
  else if (found.damaged.empty())
    print_result("{}: {} tensors and {} other files are as they were saved\n", model, found.tensors, found.files);
  if (!found.damaged.empty()) throw Error(fmt::format("{}", fmt::join(found.damaged, "; ")));
}

void InspectFlags::run() {
  if (verify) return run_verify();
  if (models::Program::is_program(model)) return inspect_program(model, stages > 0 ? stages : pp, split, json);
  engine::ParallelOptions& parallel = options.parallel;
  if (stages == 0 && !split.empty()) stages = static_cast<int>(split.size()) + 1;
  parallel.pipeline = pp > 0 ? pp : stages > 0 && schedule.empty() ? stages : 1;
  parallel.data = dp;
  parallel.tensor = tp;
  parallel.shard = shard;
  parallel.sequence_parallel = sequence_parallel;
  parallel.stages = stages;
  parallel.split = split;
  // Stages that are more than ranks need a schedule that takes several on each.
  parallel.schedule = !schedule.empty() ? schedule : stages > parallel.pipeline ? "interleaved1f1b" : "1f1b";
  parallel.microbatches = microbatches > 0 ? microbatches : parallel.pipeline == 1 ? 1 : 2 * parallel.pipeline;
  parallel.type = dtype == "bf16" ? ops::Type::bf16 : ops::Type::f32;
  const runs::Inspection result = runs::inspect_model(model, options);
  if (json) return print_json(result, summary);
  print_summary(*this, result);
  if (!summary) print_parameters(result);
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto* command = app.add_subcommand("inspect", "A model's parameters, stages, and the memory that each rank needs");
  auto flags = std::make_shared<InspectFlags>();
  InspectFlags& f = *flags;
  command->add_option("model", f.model, "Model folder, PyTorch program, or preset (a shape to measure with: demo, tiny, mid, gpt2)")
      ->type_name("DIR|FILE.pt2|PRESET")
      ->required();
  command->add_option("--stages", f.stages, "Stages (default: one per rank)")->check(CLI::Range(1, 65535));
  command->add_option("--pp", f.pp, "Ranks of the pipeline (default: one per stage)")->check(CLI::Range(1, 4096));
  command->add_option("--tp", f.tp, "Tensor-parallel ranks (default 1)")->check(CLI::Range(1, 4096));
  command->add_flag("--sequence-parallel", f.sequence_parallel, "Tensor-parallel ranks divide the tokens too");
  command->add_option("--dp", f.dp, "Data-parallel ranks (default 1)")->check(CLI::Range(1, 4096));
  command->add_flag("--shard", f.shard, "Parameters, gradients and optimizer state are split over the data-parallel ranks");
  command->add_flag("--summary", f.summary, "Stages and memory only, without the list of parameters");
  command->add_option("--schedule", f.schedule, "Schedule by name: it decides how many microbatches are alive");
  command->add_option("--microbatches", f.microbatches, "Microbatches of a step (default: two per rank)")->check(CLI::Range(1, 1 << 20));
  command->add_option("--microbatch-size", f.options.microbatch_size, "Sequences of a microbatch (default 1)")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--seq-len", f.options.sequence_length, "Tokens of a sequence (default: the model's)")->check(CLI::Range(1, 1 << 24));
  command->add_option("--split", f.split, "Modules at which a stage begins, in order (default: balanced by cost)")
      ->delimiter(',')
      ->type_name("FQN,...");
  command->add_option("--dtype", f.dtype, "Type of activations and weights in compute")->check(CLI::IsMember({"f32", "bf16"}));
  command->add_flag("--json", f.json, "Print one JSON object");
  command->add_flag("--verify", f.verify, "Compare every tensor and file of a saved folder with the checksums that were saved with it");
  command->footer(
      "Examples:\n"
      "  ppengine inspect my-gpt2/ --stages 4\n"
      "  ppengine inspect my-llama/ --summary --pp 2 --tp 2 --dp 4 --shard\n"
      "  ppengine inspect --verify out/\n"
      "  ppengine inspect gpt2 --pp 2 --stages 4 --schedule zbvzerobubble --microbatches 8 --json");
  command->callback([flags] { flags->run(); });
}

}  // namespace ppengine::cli
