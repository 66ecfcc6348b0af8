// The graph of a training run: a model's, with low-rank terms beside it, parameters that are frozen, and documents packed into sequences.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <ppengine/runs/training.hpp>

namespace ppengine::runs {

struct TrainedGraph {
  std::shared_ptr<const engine::Graph> graph;
  std::optional<engine::LoraOptions>
      lora;  // where there are low-rank terms: from the flags, or from the adapter or checkpoint to go on with
};

// Whether --freeze and --only leave a parameter of this name out.
std::function<bool(const std::string&)> frozen_by_name(const TrainingOptions& options);

TrainedGraph make_trained_graph(const TrainingOptions& options, const models::ModelSource& model);

}  // namespace ppengine::runs
