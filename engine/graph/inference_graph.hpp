// A model's graph as inference runs it: linears with the norm before them and the activation behind them as one node, over weights that
// may be stored narrower. Nothing is moved over a cut between stages, so the results do not depend on the split.
#pragma once

#include <memory>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/graph/split.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::engine {

struct InferenceGraph {
  std::shared_ptr<const Graph> graph;  // with the same parameters
  std::vector<StageCut> cuts;
};

// f32 activations only.
InferenceGraph inference_graph(const ops::Device& device, const Graph& graph, const std::vector<StageCut>& cuts,
                               const ops::WeightStorage& weights);

}  // namespace ppengine::engine
