// The graph of a training run.
#include <ppengine/runs/training/trained_graph.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/base/pattern.hpp>
#include <ppengine/engine/graph/pack.hpp>
#include <ppengine/models/build.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/runs/generation.hpp>

namespace ppengine::runs {
namespace {

void check_narrow(const TrainingOptions& options, bool lora) {
  const char* const name = ops::name_of(options.weights.format);
  if (!lora) throw ConfigError(fmt::format("--weights {} is for a frozen model: it goes with --lora-rank or --adapter", name));
  if (options.trainer.parallel.shard) throw ConfigError(fmt::format("--weights {} does not go with --shard", name));
  check(options.weights, options.trainer.parallel);
}

// What is trained: low-rank terms beside a frozen model, or the parameters that the expressions leave.
std::shared_ptr<const engine::Graph> with_frozen(const TrainingOptions& options, std::shared_ptr<const engine::Graph> graph) {
  if (options.freeze.empty() && options.only.empty()) return graph;
  const Pattern freeze("--freeze", options.freeze), only("--only", options.only);
  bool any_frozen = options.freeze.empty(), any_only = options.only.empty();
  auto result = std::make_shared<engine::Graph>(*graph);
  result->freeze([&](const engine::ParameterInfo& info) {
    const bool frozen = !options.freeze.empty() && freeze.found_in(info.name);
    const bool left_out = !options.only.empty() && !only.found_in(info.name);
    any_frozen = any_frozen || frozen;
    any_only = any_only || !left_out;
    return frozen || left_out;
  });
  if (!any_frozen) throw ConfigError(fmt::format("--freeze '{}' fits no parameter; 'ppengine inspect' lists them", options.freeze));
  if (!any_only) throw ConfigError(fmt::format("--only '{}' fits no parameter; 'ppengine inspect' lists them", options.only));
  if (result->trained_count() == 0) throw ConfigError("--freeze and --only leave no parameter to train");
  return result;
}

}  // namespace

std::function<bool(const std::string&)> frozen_by_name(const TrainingOptions& options) {
  return [freeze = Pattern("--freeze", options.freeze), only = Pattern("--only", options.only), by_freeze = !options.freeze.empty(),
          by_only = !options.only.empty()](const std::string& name) {
    return (by_freeze && freeze.found_in(name)) || (by_only && !only.found_in(name));
  };
}

TrainedGraph make_trained_graph(const TrainingOptions& options, const models::ModelSource& model) {
  TrainedGraph made{models::build_graph(model.config, {.dropout = options.dropout}), {}};
  std::string folder = options.adapter;
  if (!options.resume.empty()) folder = models::is_adapter_folder(options.resume) ? options.resume : "";
  if (!folder.empty()) {
    const models::Adapter adapter = models::Adapter::open(folder);
    adapter.check(*made.graph);
    if (options.lora.rank > 0 && options.lora.rank != adapter.options().rank)
      throw ConfigError(
          fmt::format("--lora-rank {}: {} has rank {}; leave the flag out", options.lora.rank, folder, adapter.options().rank));
    made.lora = adapter.options();
  } else if (options.lora.rank > 0) {
    made.lora = options.lora;
    if (made.lora->targets.empty()) made.lora->targets = engine::default_lora_targets(*made.graph);
  }
  if (made.lora) made.graph = engine::add_lora(*made.graph, *made.lora);
  if (options.weights.format != ops::WeightFormat::f32) {
    check_narrow(options, made.lora.has_value());
    made.graph = engine::pack_frozen(*made.graph, options.weights);
  }
  made.graph = with_frozen(options, made.graph);
  if (options.data.pack) made.graph = engine::pack_documents(*made.graph);
  return made;
}

}  // namespace ppengine::runs
