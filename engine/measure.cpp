// Measuring rates.
#include <ppengine/engine/measure.hpp>

#include <algorithm>
#include <chrono>
#include <string_view>

#include <ppengine/engine/node.hpp>
#include <ppengine/ops/linear.hpp>

namespace ppengine::engine {

double large_matmul_rate(ops::Stream& stream, ops::Type type, int runs) {
  constexpr int64_t size = 2048;
  ops::LinearSpec spec;
  spec.rows = spec.in = spec.out = size;
  spec.type = type;
  const auto op = ops::Linear::make(stream.device(), spec);
  const size_t bytes = static_cast<size_t>(size * size) * ops::size_of(type);
  ops::Buffer src(stream.device_ptr(), bytes), weight(stream.device_ptr(), bytes), dst(stream.device_ptr(), bytes);
  stream.zero(src.data(), bytes);
  stream.zero(weight.data(), bytes);
  double best = 0;
  for (int i = 0; i <= runs; ++i) {  // the first one warms up
    stream.wait();
    const auto begin = std::chrono::steady_clock::now();
    op->forward(stream, src.data(), weight.data(), nullptr, nullptr, dst.data());
    stream.wait();
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i > 0) best = std::max(best, 2.0 * double(size) * double(size) * double(size) / seconds);
  }
  return best;
}

double training_flops(const Graph& graph, int64_t sequences, int64_t length) {
  double total = 0;
  for (const Node& node : graph.nodes()) {
    const std::string_view kind = node.op->kind();
    if (kind == "linear" || kind == "attention") total += 3.0 * node.op->flops(graph, node, sequences, length);
  }
  return total;
}

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::ranges::sort(values);
  return {values[values.size() / 2], values.front(), values.back()};
}

}  // namespace ppengine::engine
