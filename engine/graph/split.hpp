// Cutting a graph into stages: at named modules, or balanced by cost. What crosses each cut follows from the graph.
#pragma once

#include <string>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>

namespace ppengine::engine {

// One stage: nodes [begin, end) of the graph.
struct StageCut {
  NodeId begin = NodeId(0), end = NodeId(0);
  std::vector<Value> receives;          // made by earlier stages and needed by this one or a later one
  std::vector<Value> sends;             // made by this or earlier stages and needed later
  std::vector<ParameterId> parameters;  // ascending; a weight used by two stages is in both

  auto nodes() const { return ids_between(begin, end); }
  bool contains(NodeId node) const { return node >= begin && node < end; }
};

// A stage begins at each named module ("transformer.h.2"), or after it ("transformer.h.1:end").
std::vector<StageCut> split_at(const Graph& graph, const std::vector<std::string>& modules);

// A stage begins at each of these nodes (and at the first).
std::vector<StageCut> split_before(const Graph& graph, std::vector<NodeId> nodes);

// Node by node: what a stage pays for it. Measured, or estimated from arithmetic: the forward, and as much for each half of the backward
// that it has (frozen parameters have no weight half; what no trained parameter lies below has none at all).
IdVector<NodeId, double> estimated_costs(const Graph& graph, std::int64_t batch, std::int64_t length);
// As many stages as there are places to cut.
std::vector<StageCut> split_everywhere(const Graph& graph);
// Stages of about the same cost: the largest is as small as possible. Throws ConfigError where the graph has too few places to cut.
std::vector<StageCut> split_evenly(const Graph& graph, int stages, const IdVector<NodeId, double>& node_costs);

// The first node of each module: where a graph can be cut so that the cut has a name. The name of the cut before node i.
std::string cut_name(const Graph& graph, NodeId node);
// Where a stage begins, as split_at takes it: a module, or behind which one. The model's first module for the first stage.
std::string first_module(const Graph& graph, const StageCut& cut);

}  // namespace ppengine::engine
