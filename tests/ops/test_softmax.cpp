// Softmax: against PyTorch, finite differences in double, and each implementation against the other.
#include <ppengine/ops/softmax.hpp>

#include "layers.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

std::vector<double> softmax_in_double(const std::vector<double>& x, std::size_t width) {
  std::vector<double> y(x.size());
  for (std::size_t row = 0; row * width < x.size(); ++row) {
    double top = -1e300, total = 0;
    for (std::size_t i = 0; i < width; ++i) top = std::max(top, x[row * width + i]);
    for (std::size_t i = 0; i < width; ++i) total += y[row * width + i] = std::exp(x[row * width + i] - top);
    for (std::size_t i = 0; i < width; ++i) y[row * width + i] /= total;
  }
  return y;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(softmax)

BOOST_AUTO_TEST_CASE(equals_pytorch_also_for_large_magnitudes) {
  Stream stream(device());
  for (const auto& one : reference("softmax"))
    for (const auto& [name, op] : every_implementation<Softmax>(*device(), SoftmaxSpec{.rows = one["rows"], .width = one["width"]})) {
      const Array x(stream, floats(one["x"])), y(stream, x.count()), diff(stream, floats(one["diff"]));
      op->forward(stream, x.data(), y.data());
      check_close(name + " y", y.get(), floats(one["y"]), 1e-6);
      op->backward_input(stream, y.data(), diff.data(), diff.data());  // in place
      check_close(name + " diff_x", diff.get(), floats(one["diff_x"]), 1e-6);
    }
}

BOOST_AUTO_TEST_CASE(gradients_equal_finite_differences_at_odd_sizes) {
  Stream stream(device());
  for (const Type type : {Type::f32, Type::bf16})
    for (const auto& [rows, width] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {1, 19}, {6, 16}, {3, 65}, {2, 130}}) {
      const auto n = static_cast<std::size_t>(rows * width), w = static_cast<std::size_t>(width);
      const auto x = rounded(random_values(n, 1, 4), type), diff = rounded(random_values(n, 2), type);
      const auto expected = softmax_in_double(as_double(x), w);
      const auto gradient = numeric_gradient([&](const auto& at) { return dot(softmax_in_double(at, w), as_double(diff)); }, as_double(x));
      for (const auto& [name, op] : every_implementation<Softmax>(*device(), SoftmaxSpec{.rows = rows, .width = width, .type = type})) {
        const Array on_x(stream, x, type), y(stream, n, type), on_diff(stream, diff, type), diff_x(stream, n, type);
        op->forward(stream, on_x.data(), y.data());
        op->backward_input(stream, y.data(), on_diff.data(), diff_x.data());
        check_close(label(name, type, rows, width) + " y", y.get(), expected, tolerance(type, 1e-6));
        check_close(label(name, type, rows, width) + " diff_x", diff_x.get(), gradient, tolerance(type, 1e-6));
        const auto before = y.get();
        op->forward(stream, on_x.data(), y.data());
        BOOST_TEST(y.get() == before, "same bits again");
      }
    }
}

BOOST_AUTO_TEST_CASE(no_rows_are_fine) {
  Stream stream(device());
  const Array nothing(stream, std::size_t{0}), kept(stream, std::vector<float>{1, 2});
  const auto op = Softmax::make(*device(), {.rows = 0, .width = 4});
  op->forward(stream, nothing.data(), nothing.data());
  op->backward_input(stream, nothing.data(), nothing.data(), nothing.data());
  op->forward(stream, kept.data(), kept.data());
  BOOST_TEST(kept.get() == (std::vector<float>{1, 2}));
}

BOOST_AUTO_TEST_SUITE_END()
