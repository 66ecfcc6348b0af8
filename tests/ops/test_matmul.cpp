// Batched matrix product: any strides, repeated batch dimensions, scaling and accumulation, against sums in double on every implementation.
#include <ppengine/base/error.hpp>
#include <ppengine/ops/matmul.hpp>

#include "support.hpp"

using namespace ppengine::ops;
using namespace ppengine::ops::support;

namespace {

// The offset of element `index` (counted densely over `shape`) in a tensor whose dimensions of size 1 are repeated.
std::int64_t offset(const Tensor& tensor, std::array<std::int64_t, 4> at) {
  std::int64_t sum = 0;
  for (int i = 0; i < tensor.shape.rank(); ++i)
    if (tensor.shape[i] != 1) sum += at[at.size() - std::size_t(tensor.shape.rank()) + std::size_t(i)] * tensor.strides[i];
  return sum;
}

std::size_t extent(const Tensor& tensor) {
  std::int64_t last = 0;
  for (int i = 0; i < tensor.shape.rank(); ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  return tensor.count() == 0 ? 0 : std::size_t(last + 1);
}

Tensor strided(Type type, const Shape& shape, const Shape& strides) {
  Tensor tensor(nullptr, type, shape);
  tensor.strides = strides;
  return tensor;
}
Tensor dense(Type type, const Shape& shape) { return {nullptr, type, shape}; }

void check_on(const std::shared_ptr<Device>& device, const MatmulSpec& spec, double tolerance) {
  BOOST_TEST_CONTEXT(spec.a.shape.text() << " x " << spec.b.shape.text() << " onednn " << device->onednn()) {
    Stream stream(device);
    const auto op = Matmul::make(*device, spec);
    const auto a = rounded(random_values(extent(spec.a), 1), spec.a.type), b = rounded(random_values(extent(spec.b), 2), spec.b.type);
    const auto c = rounded(random_values(extent(spec.c), 3), spec.c.type);
    Array a_array(stream, a, spec.a.type), b_array(stream, b, spec.b.type), c_array(stream, c, spec.c.type);
    op->run(stream, a_array.data(), b_array.data(), c_array.data());
    auto expected = as_double(c);
    const int rank = spec.c.shape.rank();
    const auto size = [&](int i) { return i < 4 - rank ? std::int64_t{1} : spec.c.shape[i - 4 + rank]; };
    for (std::int64_t i = 0; i < size(0); ++i)
      for (std::int64_t j = 0; j < size(1); ++j)
        for (std::int64_t m = 0; m < size(2); ++m)
          for (std::int64_t n = 0; n < size(3); ++n) {
            double sum = 0;
            for (std::int64_t k = 0; k < spec.a.shape.back(); ++k)
              sum += double(a[std::size_t(offset(spec.a, {i, j, m, k}))]) * double(b[std::size_t(offset(spec.b, {i, j, k, n}))]);
            double& to = expected[std::size_t(offset(spec.c, {i, j, m, n}))];
            to = spec.alpha * sum + (spec.accumulate ? to : 0.0);
          }
    check_close("c", c_array.get(), expected, tolerance);
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(matmul)

BOOST_AUTO_TEST_CASE(any_strides_and_batches_match_sums_in_double) {
  const Type f32 = Type::f32;
  for (const auto& device : devices()) {
    check_on(device, {dense(f32, {1, 1}), dense(f32, {1, 1}), dense(f32, {1, 1})}, 1e-6);
    check_on(device, {dense(f32, {65, 33}), dense(f32, {33, 70}), dense(f32, {65, 70})}, 1e-5);
    check_on(device, {strided(f32, {20, 30}, {1, 20}), strided(f32, {30, 40}, {1, 30}), dense(f32, {20, 40}), 0.5f, true}, 1e-5);
    check_on(device, {dense(f32, {3, 17, 5}), dense(f32, {3, 5, 9}), dense(f32, {3, 17, 9}), 2.0f, false}, 1e-5);
    check_on(device, {dense(f32, {2, 3, 10, 8}), dense(f32, {2, 1, 8, 6}), dense(f32, {2, 3, 10, 6})}, 1e-5);
    // Heads inside tokens: [batch, head, token, element] of a [batch, token, head, element] tensor.
    check_on(device, {strided(f32, {2, 3, 7, 4}, {84, 4, 12, 1}), strided(f32, {2, 3, 4, 7}, {84, 4, 1, 12}), dense(f32, {2, 3, 7, 7})},
             1e-5);
    check_on(device, {dense(f32, {2, 1, 50}), strided(f32, {2, 50, 20}, {1000, 1, 50}), dense(f32, {2, 1, 20})}, 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(nothing_to_multiply) {
  const Type f32 = Type::f32;
  for (const auto& device : devices()) {
    check_on(device, {dense(f32, {0, 4}), dense(f32, {4, 3}), dense(f32, {0, 3})}, 1e-6);
    check_on(device, {dense(f32, {5, 0}), dense(f32, {0, 3}), dense(f32, {5, 3})}, 1e-6);
  }
}

BOOST_AUTO_TEST_CASE(bf16_is_close_to_f32) {
  const Type bf16 = Type::bf16;
  for (const auto& device : devices()) {
    check_on(device, {dense(bf16, {2, 20, 30}), dense(bf16, {2, 30, 24}), dense(bf16, {2, 20, 24})}, 5e-3);
    check_on(device, {dense(bf16, {33, 65}), dense(bf16, {65, 20}), dense(Type::f32, {33, 20})}, 1e-5);
  }
}

BOOST_AUTO_TEST_CASE(shapes_that_do_not_fit_are_refused) {
  const Type f32 = Type::f32;
  BOOST_CHECK_THROW(Matmul::make(*device(), {dense(f32, {2, 3}), dense(f32, {4, 5}), dense(f32, {2, 5})}), ppengine::ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
