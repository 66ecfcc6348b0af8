// Softmax by oneDNN.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/onednn/refusal.hpp>

namespace ppengine::ops {
namespace {

constexpr auto algorithm = dnnl::algorithm::softmax_accurate;

onednn::Desc describe(const SoftmaxSpec& spec) {
  return {{spec.rows, spec.width}, onednn::data_type(spec.type), dnnl::memory::format_tag::ab};
}

dnnl::softmax_forward::primitive_desc describe_forward(const Device& device, const SoftmaxSpec& spec, bool allow_empty = false) {
  const auto data = describe(spec);
  return {device.impl().engine.value(),
          dnnl::prop_kind::forward_training,
          algorithm,
          data,
          data,
          1,
          onednn::Primitive::attributes(),
          allow_empty};
}

dnnl::softmax_backward::primitive_desc describe_backward(const Device& device, const SoftmaxSpec& spec, bool allow_empty = false) {
  const auto data = describe(spec);
  return {device.impl().engine.value(),    algorithm,  data, data, data, 1, describe_forward(device, spec),
          onednn::Primitive::attributes(), allow_empty};
}

class OnednnSoftmax final : public Softmax {
 public:
  OnednnSoftmax(Device& device, const SoftmaxSpec& spec)
      : forward_(device, describe_forward(device, spec), {{DNNL_ARG_SRC, describe(spec)}, {DNNL_ARG_DST, describe(spec)}}),
        backward_(device, describe_backward(device, spec),
                  {{DNNL_ARG_DST, describe(spec)}, {DNNL_ARG_DIFF_DST, describe(spec)}, {DNNL_ARG_DIFF_SRC, describe(spec)}}) {}

  void forward(Stream& stream, const void* src, void* dst) override { forward_.run(stream, {src, dst}); }
  void backward_input(Stream& stream, const void* dst, const void* diff_dst, void* diff_src) override {
    backward_.run(stream, {dst, diff_dst, diff_src});
  }

 private:
  onednn::Primitive forward_, backward_;
};

Refusal refusal(const Device& device, const SoftmaxSpec& spec) {
  if (auto reason = onednn::device_refusal(device)) return reason;
  if (spec.rows == 0) return "oneDNN takes no empty tensors";
  if (auto reason = onednn::primitive_refusal(describe_forward(device, spec, true))) return reason;
  return onednn::primitive_refusal(describe_backward(device, spec, true));
}

}  // namespace

constexpr Implementation<Softmax, SoftmaxSpec> onednn_softmax{
    "onednn", refusal,
    [](Device& device, const SoftmaxSpec& spec) -> std::unique_ptr<Softmax> { return std::make_unique<OnednnSoftmax>(device, spec); }};

}  // namespace ppengine::ops
