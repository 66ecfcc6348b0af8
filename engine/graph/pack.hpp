// Packing: a graph for sequences that hold several documents. It has one more input, the tokens "positions" (of each token in its
// document, from 0): attention stays within a document, and positions begin anew with each.
#pragma once

#include <memory>

#include <ppengine/engine/graph/graph.hpp>

namespace ppengine::engine {

constexpr const char* positions_input = "positions";

std::shared_ptr<const Graph> pack_documents(const Graph& graph);

}  // namespace ppengine::engine
