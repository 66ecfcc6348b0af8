// Matrix products on our own kernels.
#include <ppengine/ops/sycl/product.hpp>

#include <ppengine/ops/device/nvidia.hpp>

namespace ppengine::ops::own {
namespace {

ProductUnits units_of(const Device& device) { return {has_tensor_cores(device), device.info().compute_units}; }

}  // namespace

MatmulShape plain_shape(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t a_m, std::int64_t a_k, std::int64_t b_k,
                        std::int64_t b_n) {
  MatmulShape shape{};
  shape.m = m, shape.n = n, shape.k = k;
  shape.a_m = a_m, shape.a_k = a_k, shape.b_k = b_k, shape.b_n = b_n, shape.c_m = n, shape.c_n = 1;
  shape.inner_batch = 1;
  shape.alpha = 1.0f;
  return shape;
}

Product::Product(Device& device, Type in, Type out, const MatmulShape& shape, std::int64_t batch)
    : shape_(shape),
      on_device_(device, shape),
      aligned_(choose_product(units_of(device), in, out, shape, batch, true)),
      other_(choose_product(units_of(device), in, out, shape, batch, false)),
      aligned_kernel_(&device.kernels().get(aligned_.file, aligned_.kernel)),
      other_kernel_(&device.kernels().get(other_.file, other_.kernel)) {}

void Product::run(Stream& stream, const void* a, const void* b, void* c, const void* bias, const void* add, bool accumulate) const {
  if (shape_.m == 0 || shape_.n == 0) return;
  const bool aligned = (reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b)) % 16 == 0;
  const ProductChoice& choice = aligned ? aligned_ : other_;
  (aligned ? aligned_kernel_ : other_kernel_)
      ->launch_2d(stream, choice.groups_y, choice.groups_x, choice.size_y, choice.size_x, a, b, c, bias, add, on_device_.data(),
                  std::int32_t{accumulate});
}

}  // namespace ppengine::ops::own
