// Matrix products on our own kernels (kernels/matmul.cpp, kernels/matmul_tensor_*.cpp).
#pragma once

#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/kernels/matmul_shape.hpp>
#include <ppengine/ops/sycl/constant.hpp>
#include <ppengine/ops/sycl/product_choice.hpp>

namespace ppengine::ops::own {

// c = alpha · a·b + bias + add (+ c): sizes and strides fixed, pointers per call.
class Product {
 public:
  Product() = default;
  // in: of a, b and bias; out: of c and add.
  Product(Device& device, Type in, Type out, const MatmulShape& shape, std::int64_t batch = 1);
  // bias and add may be null.
  void run(Stream& stream, const void* a, const void* b, void* c, const void* bias, const void* add, bool accumulate) const;

 private:
  MatmulShape shape_{};
  Constant<MatmulShape> on_device_;
  ProductChoice aligned_, other_;  // where a and b lie at multiples of 16 bytes, and anywhere
  const Kernel *aligned_kernel_ = nullptr, *other_kernel_ = nullptr;
};

// Sizes and strides of a plain product, without a batch.
MatmulShape plain_shape(std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t a_m, std::int64_t a_k, std::int64_t b_k,
                        std::int64_t b_n);

}  // namespace ppengine::ops::own
