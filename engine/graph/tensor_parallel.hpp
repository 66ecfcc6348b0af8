// Tensor parallelism: a model's graph rewritten into what one of several ranks does of it, after the graph's tensor
// plan.
#pragma once

#include <memory>

#include <ppengine/engine/graph/graph.hpp>

namespace ppengine::engine {

// Linears and embeddings that the plan names have their part of the weights; what lies between them works on a part of
// the width or of the heads, and a cross entropy on a part of the classes. All else is the same on every rank, or with
// sequence_parallel on a part of the tokens where the op can: norms, residuals, dropout. Parameters keep their ids and
// names. Throws ConfigError where something cannot be divided.
std::shared_ptr<const Graph> shard_graph(const std::shared_ptr<const Graph>& graph, int tensor_rank, int tensor_size,
                                         bool sequence_parallel = false);

}  // namespace ppengine::engine
