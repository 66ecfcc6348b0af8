// A predicted training step.
#include "output/prediction.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <ppengine/base/error.hpp>
#include <ppengine/engine/graph/tensor_parallel.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/source.hpp>

#include "output/plural.hpp"

namespace ppengine::cli {

void PredictionFlags::add(CLI::App& command) {
  constexpr const char* group = "Prediction";
  command
      .add_option(
          "--on", device,
          "Predict a training step on this device: a100, h100, b200, mi300x, pvc, or a JSON file of your own; 'list' prints what is "
          "known of them")
      ->type_name("NAME|FILE")
      ->group(group);
  // The flags below count with --on alone. None demands it: as variables of the environment they may be meant for train.
  command.add_option("--model", model, "Model to predict: preset or folder")->type_name("DIR|PRESET")->group(group);
  command.add_option("--dtype", type, "Type of products: f32, tf32, bf16, f16 (default bf16 where the device has it)")
      ->check(CLI::IsMember({"f32", "tf32", "bf16", "f16"}))
      ->group(group);
  command.add_option("--microbatch-size", microbatch_size, "Sequences of a microbatch (default 1)")
      ->check(CLI::Range(1, 1 << 20))
      ->group(group);
  command.add_option("--seq-len", length, "Tokens of a sequence (default: the model's)")->check(CLI::Range(1, 1 << 24))->group(group);
  command.add_option("--dp", data, "Data-parallel copies of the pipeline (default 1)")->check(CLI::Range(1, 1 << 20))->group(group);
  command.add_option("--tp", tensor, "Tensor-parallel ranks of each stage (default 1)")->check(CLI::Range(1, 1 << 10))->group(group);
  command.add_flag("--shard", shard, "Data-parallel ranks divide the optimizer's work")->group(group);
}

PredictedStep PredictionFlags::predict(const schedules::Plan& plan) const {
  if (model.empty()) throw ConfigError("--on needs --model: the model whose step is predicted");
  PredictedStep step{.prediction = {}, .device = engine::find_device_model(device), .model = model, .type = type};
  if (step.type.empty()) step.type = step.device.peak.contains("bf16") ? "bf16" : "f32";
  const models::ModelSource source = models::open_model(model);
  const std::int64_t tokens = length > 0 ? length : source.sequence_length;
  const auto graph = engine::shard_graph(models::build_graph(source.config), 0, tensor, false);
  const auto stages = engine::split_evenly(*graph, plan.stages, engine::estimated_costs(*graph, microbatch_size, tokens));
  step.prediction =
      engine::predict(*graph, stages, plan, step.device,
                      {.batch = microbatch_size, .length = tokens, .data = data, .tensor = tensor, .sharded = shard, .type = step.type});
  step.tokens = double(microbatch_size * tokens) * plan.microbatches * data;
  step.ranks = plan.ranks * data * tensor;
  return step;
}

std::string PredictedStep::text() const {
  const double seconds = prediction.step(), share = prediction.flops / seconds / (device.peak_of(type) * ranks);
  return fmt::format(
      "{} on {} ({}), {} a step\n  predicted: {:.2f} ms a step, {:.0f} tokens/s, {:.1f} % of the peak, {:.1f} % idle in the plan\n"
      "  of which the plan {:.2f} ms, gradients that nothing hides {:.2f} ms, the optimizer {:.2f} ms\n",
      model, plural(ranks, "rank"), device.title + ", " + type, plural(static_cast<std::int64_t>(tokens), "token"), 1e3 * seconds,
      tokens / seconds, 100 * share, 100 * prediction.idle_share, 1e3 * prediction.pipeline, 1e3 * prediction.reduction,
      1e3 * prediction.optimizer);
}

nlohmann::json PredictedStep::json() const {
  const double seconds = prediction.step();
  nlohmann::json kinds = nlohmann::json::object(), stages = nlohmann::json::array();
  for (const auto& [kind, taken] : prediction.by_kind) kinds[kind] = 1e3 * taken;
  for (const auto& one : prediction.costs.stages)
    stages.push_back(
        {{"forward", 1e3 * one.forward}, {"backward_input", 1e3 * one.backward_input}, {"backward_weight", 1e3 * one.backward_weight}});
  return {{"device", device.title},
          {"dtype", type},
          {"ranks", ranks},
          {"step_milliseconds", 1e3 * seconds},
          {"tokens_per_second", tokens / seconds},
          {"idle_share", prediction.idle_share},
          {"peak_share", prediction.flops / seconds / (device.peak_of(type) * ranks)},
          {"plan_milliseconds", 1e3 * prediction.pipeline},
          {"reduction_milliseconds", 1e3 * prediction.reduction},
          {"optimizer_milliseconds", 1e3 * prediction.optimizer},
          {"milliseconds_by_kind", kinds},
          {"stage_milliseconds", stages}};
}

}  // namespace ppengine::cli
