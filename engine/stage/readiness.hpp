// Which nodes of a stage a run needs, and in which order the gradients of their parameters become final in its backward: both follow from
// the graph, so that every rank knows them before anything is compiled or has run.
#pragma once

#include <vector>

#include <ppengine/engine/graph/split.hpp>

namespace ppengine::engine {

// Nodes of the stage that the loss, the output, a later stage or a cache depends on; ascending.
std::vector<NodeId> needed_nodes(const Graph& graph, const StageCut& cut, bool loss, bool output, bool cache);
// By node: whether one row of its output is enough where the graph's output is wanted of that row alone.
IdVector<NodeId, bool> one_row_nodes(const Graph& graph);

struct GradientOrder {
  std::vector<ParameterId> used;    // parameters in the order in which their gradients are final: that of the backward's weight halves
  std::vector<ParameterId> unused;  // of the stage, but the loss does not depend on them
  std::vector<ParameterId> frozen;  // get none
};
// A table of which a batch touches few rows: the others' gradient is zero.
struct RowTable {
  ParameterId parameter = {};
  Value tokens = {};             // the model's input that names rows
  std::int64_t first_token = 0;  // of row 0
  std::int64_t rows = 0, width = 0;
};
// Those of the stage that nothing else of it uses: an embedding, but not one whose table is the head's weight too.
std::vector<RowTable> row_tables(const Graph& graph, const StageCut& cut);

GradientOrder gradient_order(const Graph& graph, const StageCut& cut);

}  // namespace ppengine::engine
