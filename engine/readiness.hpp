// Which nodes of a stage a run needs, and in which order the gradients of their parameters become final in its backward: both follow from
// the graph, so that every rank knows them before anything is compiled or has run.
#pragma once

#include <vector>

#include <ppengine/engine/split.hpp>

namespace ppengine::engine {

// Nodes of the stage that the loss, the output, a later stage or a cache depends on; ascending.
std::vector<int> needed_nodes(const Graph& graph, const StageCut& cut, bool loss, bool output, bool cache);

struct GradientOrder {
  std::vector<int> used;    // parameters in the order in which their gradients are final: that of the backward's weight halves
  std::vector<int> unused;  // of the stage, but the loss does not depend on them
};
GradientOrder gradient_order(const Graph& graph, const StageCut& cut);

}  // namespace ppengine::engine
