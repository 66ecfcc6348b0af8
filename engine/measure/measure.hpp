// Measuring: what a large matrix product reaches on a device, and what a model's step computes.
#pragma once

#include <vector>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/ops/device/stream.hpp>

namespace ppengine::engine {

// Arithmetic per second of a large product in the given type: the best of a few runs.
double large_matmul_rate(ops::Stream& stream, ops::Type type, int runs = 4);

// Arithmetic of one training step over so many sequences: matrix products of forward and backward, without recomputation.
double training_flops(const Graph& graph, std::int64_t sequences, std::int64_t length);

struct Spread {
  double median = 0, low = 0, high = 0;
};
Spread spread_of(std::vector<double> values);

}  // namespace ppengine::engine
