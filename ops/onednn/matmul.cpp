// Batched matrix product by oneDNN.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/onednn/primitive.hpp>

namespace ppengine::ops {
namespace {

onednn::Desc describe(const Tensor& tensor) {
  const auto list = [](const Shape& shape) { return onednn::Dims(shape.dims().begin(), shape.dims().end()); };
  return {list(tensor.shape), onednn::data_type(tensor.type), list(tensor.strides)};
}

onednn::Product product_of(const MatmulSpec& spec) {
  return {describe(spec.a), describe(spec.b), describe(spec.c), {}, {}, spec.alpha, spec.accumulate};
}

class OnednnMatmul : public Matmul {
 public:
  OnednnMatmul(Device& device, const MatmulSpec& spec) : product_(make_product(device, product_of(spec))) {}
  void run(Stream& stream, const void* a, const void* b, void* c) override { product_.run(stream, {a, b, c}); }

 private:
  onednn::Primitive product_;
};

Refusal refuse(const Device& device, const MatmulSpec& spec) {
  if (auto refusal = onednn::device_refusal(device)) return refusal;
  if (spec.a.count() == 0 || spec.b.count() == 0) return "there is nothing to multiply";
  return product_refusal(device, product_of(spec));
}

}  // namespace

constexpr Implementation<Matmul, MatmulSpec> onednn_matmul{"onednn", refuse, construct<OnednnMatmul>};

}  // namespace ppengine::ops
