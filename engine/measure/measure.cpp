// Measuring rates.
#include <ppengine/engine/measure/measure.hpp>

#include <algorithm>
#include <chrono>
#include <string_view>

#include <ppengine/engine/graph/node.hpp>
#include <ppengine/ops/matmul.hpp>

namespace ppengine::engine {

double large_matmul_rate(ops::Stream& stream, ops::Type type, int runs) {
  constexpr std::int64_t size = 2048;
  const ops::Tensor matrix(nullptr, type, {size, size});
  ops::Tensor transposed = matrix;
  transposed.strides = {1, size};
  const auto op = ops::Matmul::make(stream.device(), {matrix, transposed, matrix});
  const std::size_t bytes = static_cast<std::size_t>(size * size) * ops::size_of(type);
  ops::Buffer src(stream.device_ptr(), bytes), weight(stream.device_ptr(), bytes), dst(stream.device_ptr(), bytes);
  stream.zero(src.data(), bytes);
  stream.zero(weight.data(), bytes);
  double best = 0;
  for (int i = 0; i <= runs; ++i) {  // the first one warms up
    stream.wait();
    const auto begin = std::chrono::steady_clock::now();
    op->run(stream, src.data(), weight.data(), dst.data());
    stream.wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0) best = std::max(best, 2.0 * double(size) * double(size) * double(size) / seconds);
  }
  return best;
}

double training_flops(const Graph& graph, std::int64_t sequences, std::int64_t length) {
  double total = 0;
  for (const Node& node : graph.nodes())
    if (node.op->multiplies_matrices()) total += 3.0 * node.op->flops(graph, node, sequences, length);
  return total;
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {values[values.size() / 2], values.front(), values.back()};
}

}  // namespace ppengine::engine
