// Activations by oneDNN.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/onednn/refusal.hpp>

namespace ppengine::ops {
namespace {

dnnl::algorithm algorithm(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu_tanh:
      return dnnl::algorithm::eltwise_gelu_tanh;
    case ActivationKind::gelu_erf:
      return dnnl::algorithm::eltwise_gelu_erf;
    case ActivationKind::silu:
      return dnnl::algorithm::eltwise_swish;
    default:
      return dnnl::algorithm::eltwise_relu;
  }
}

float alpha(ActivationKind kind) { return kind == ActivationKind::silu ? 1.0f : 0.0f; }

onednn::Desc describe(const ActivationSpec& spec) { return {{spec.count}, onednn::data_type(spec.type), dnnl::memory::format_tag::a}; }

dnnl::eltwise_forward::primitive_desc describe_forward(const Device& device, const ActivationSpec& spec, bool allow_empty = false) {
  const auto data = describe(spec);
  return {device.impl().engine.value(),
          dnnl::prop_kind::forward_training,
          algorithm(spec.kind),
          data,
          data,
          alpha(spec.kind),
          0.0f,
          onednn::Primitive::attributes(),
          allow_empty};
}

dnnl::eltwise_backward::primitive_desc describe_backward(const Device& device, const ActivationSpec& spec, bool allow_empty = false) {
  const auto data = describe(spec);
  return {device.impl().engine.value(),    algorithm(spec.kind), data, data, data, alpha(spec.kind), 0.0f, describe_forward(device, spec),
          onednn::Primitive::attributes(), allow_empty};
}

class OnednnActivation final : public Activation {
 public:
  OnednnActivation(Device& device, const ActivationSpec& spec)
      : forward_(device, describe_forward(device, spec), {{DNNL_ARG_SRC, describe(spec)}, {DNNL_ARG_DST, describe(spec)}}),
        backward_(device, describe_backward(device, spec),
                  {{DNNL_ARG_SRC, describe(spec)}, {DNNL_ARG_DIFF_DST, describe(spec)}, {DNNL_ARG_DIFF_SRC, describe(spec)}}) {}

  void forward(Stream& stream, const void* src, void* dst) override { forward_.run(stream, {src, dst}); }
  void backward_input(Stream& stream, const void* src, const void* diff_dst, void* diff_src) override {
    backward_.run(stream, {src, diff_dst, diff_src});
  }

 private:
  onednn::Primitive forward_, backward_;
};

Refusal refusal(const Device& device, const ActivationSpec& spec) {
  if (auto reason = onednn::device_refusal(device)) return reason;
  if (spec.count == 0) return "oneDNN takes no empty tensors";
  if (device.info().is_cpu) return "its CPU code is not finite for every finite input (activation/huge_inputs_give_no_nan); ours is";
  if (auto reason = onednn::primitive_refusal(describe_forward(device, spec, true))) return reason;
  return onednn::primitive_refusal(describe_backward(device, spec, true));
}

}  // namespace

constexpr Implementation<Activation, ActivationSpec> onednn_activation{
    "onednn", refusal, [](Device& device, const ActivationSpec& spec) -> std::unique_ptr<Activation> {
      return std::make_unique<OnednnActivation>(device, spec);
    }};

}  // namespace ppengine::ops
