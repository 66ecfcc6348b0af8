// Batched matrix product on our own kernel.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/sycl/product.hpp>

namespace ppengine::ops {
namespace {

// Dimension i of the last four, as if the tensor had that many.
std::int64_t size_at(const Tensor& tensor, int i) { return i < 4 - tensor.shape.rank() ? 1 : tensor.shape[i - 4 + tensor.shape.rank()]; }
std::int64_t stride_at(const Tensor& tensor, int i) { return size_at(tensor, i) == 1 ? 0 : tensor.strides[i - 4 + tensor.shape.rank()]; }
// The stride of a row or column counts even when there is only one: it says which direction is contiguous.
std::int64_t plain_stride(const Tensor& tensor, int i) { return tensor.strides[i - 4 + tensor.shape.rank()]; }

MatmulShape shape_of(const MatmulSpec& spec) {
  MatmulShape shape{};
  shape.m = size_at(spec.c, 2), shape.n = size_at(spec.c, 3), shape.k = size_at(spec.a, 3);
  shape.a_m = plain_stride(spec.a, 2), shape.a_k = plain_stride(spec.a, 3);
  shape.b_k = plain_stride(spec.b, 2), shape.b_n = plain_stride(spec.b, 3);
  shape.c_m = plain_stride(spec.c, 2), shape.c_n = plain_stride(spec.c, 3);
  shape.inner_batch = size_at(spec.c, 1);
  shape.a_outer = stride_at(spec.a, 0), shape.a_inner = stride_at(spec.a, 1);
  shape.b_outer = stride_at(spec.b, 0), shape.b_inner = stride_at(spec.b, 1);
  shape.c_outer = stride_at(spec.c, 0), shape.c_inner = stride_at(spec.c, 1);
  shape.alpha = spec.alpha;
  return shape;
}

class SyclMatmul : public Matmul {
 public:
  SyclMatmul(Device& device, const MatmulSpec& spec)
      : product_(device, spec.a.type, spec.c.type, shape_of(spec), size_at(spec.c, 0) * size_at(spec.c, 1)), accumulate_(spec.accumulate) {}
  void run(Stream& stream, const void* a, const void* b, void* c) override { product_.run(stream, a, b, c, nullptr, nullptr, accumulate_); }

 private:
  own::Product product_;
  bool accumulate_;
};

Refusal refuse(const Device&, const MatmulSpec& spec) {
  if (spec.a.type == Type::i32) return "integers are not multiplied";
  if (spec.a.type == Type::f32 && spec.c.type != Type::f32) return "f32 operands with a bf16 result";
  return {};
}

}  // namespace

constexpr Implementation<Matmul, MatmulSpec> sycl_matmul{"sycl", refuse, construct<SyclMatmul>};

}  // namespace ppengine::ops
