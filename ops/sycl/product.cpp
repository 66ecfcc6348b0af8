// Matrix products on our own kernel.
#include <ppengine/ops/sycl/product.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>

namespace ppengine::ops::own {
namespace {

constexpr int64_t tile_side = 64, tile_threads = 16;  // as in kernels/tile.hpp
constexpr int64_t few_rows = 4;                       // up to here a tile would be mostly empty

}  // namespace

MatmulShape plain_shape(int64_t m, int64_t n, int64_t k, int64_t a_m, int64_t a_k, int64_t b_k, int64_t b_n) {
  MatmulShape shape{};
  shape.m = m, shape.n = n, shape.k = k;
  shape.a_m = a_m, shape.a_k = a_k, shape.b_k = b_k, shape.b_n = b_n, shape.c_m = n, shape.c_n = 1;
  shape.inner_batch = 1;
  shape.alpha = 1.0f;
  return shape;
}

Product::Product(Device& device, Type in, Type out, const MatmulShape& shape, int64_t batch)
    : shape_(shape), on_device_(device, shape), batch_(batch) {
  PPENGINE_ASSERT(in != Type::i32 && out != Type::i32 && !(in == Type::f32 && out == Type::bf16));
  const char* const types = in == Type::f32 ? "f32" : out == Type::f32 ? "bf16_f32" : "bf16";
  tiled_ = &device.kernels().get("matmul", fmt::format("matmul_{}", types));
  few_rows_ = &device.kernels().get("matmul", fmt::format("matvec_{}", types));
}

void Product::run(Stream& stream, const void* a, const void* b, void* c, const void* bias, const void* add, bool accumulate) const {
  if (shape_.m == 0 || shape_.n == 0) return;
  const auto up = [](int64_t count, int64_t by) { return static_cast<size_t>((count + by - 1) / by); };
  const bool few = shape_.m <= few_rows;
  const size_t groups_y = (few ? static_cast<size_t>(shape_.m) : up(shape_.m, tile_side)) * static_cast<size_t>(batch_);
  const size_t groups_x = up(shape_.n, few ? tile_threads : tile_side);
  (few ? few_rows_ : tiled_)
      ->launch_2d(stream, groups_y, groups_x, tile_threads, tile_threads, a, b, c, bias, add, on_device_.data(), int32_t{accumulate});
}

}  // namespace ppengine::ops::own
