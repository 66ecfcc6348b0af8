// Activations by our own kernels.
#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

std::string kernel_name(ActivationKind kind, bool backward) {
  const char* name = kind == ActivationKind::gelu_tanh  ? "gelu_tanh"
                     : kind == ActivationKind::gelu_erf ? "gelu_erf"
                     : kind == ActivationKind::silu     ? "silu"
                                                        : "relu";
  return fmt::format("{}{}", name, backward ? "_backward" : "");
}

class SyclActivation final : public Activation {
 public:
  SyclActivation(Device& device, const ActivationSpec& spec)
      : count_(spec.count),
        forward_(typed_kernel(device, "activation", kernel_name(spec.kind, false), spec.type)),
        backward_(typed_kernel(device, "activation", kernel_name(spec.kind, true), spec.type)),
        split_(split_elements(device, spec.count)) {}

  void forward(Stream& stream, const void* src, void* dst) override {
    forward_.launch(stream, split_.groups, split_.size, src, dst, count_, split_.chunk);
  }

  void backward_input(Stream& stream, const void* src, const void* diff_dst, void* diff_src) override {
    backward_.launch(stream, split_.groups, split_.size, src, diff_dst, diff_src, count_, split_.chunk);
  }

 private:
  std::int64_t count_;
  const Kernel &forward_, &backward_;
  Split split_;
};

class SyclGatedSilu final : public GatedSilu {
 public:
  SyclGatedSilu(Device& device, const GatedSiluSpec& spec)
      : spec_(spec),
        forward_(typed_kernel(device, "activation", "gated_silu", spec.type)),
        backward_(typed_kernel(device, "activation", "gated_silu_backward", spec.type)),
        rows_(split_rows(device, spec.rows, spec.width)) {}

  void forward(Stream& stream, const void* gate, const void* up, void* dst) override {
    forward_.launch(stream, rows_.groups, rows_.size, gate, up, dst, spec_.rows, spec_.width, spec_.stride, rows_.chunk);
  }

  void backward_input(Stream& stream, const void* gate, const void* up, const void* diff_dst, void* diff_gate, void* diff_up) override {
    backward_.launch(stream, rows_.groups, rows_.size, gate, up, diff_dst, diff_gate, diff_up, spec_.rows, spec_.width, spec_.stride,
                     rows_.chunk);
  }

 private:
  GatedSiluSpec spec_;
  const Kernel &forward_, &backward_;
  Split rows_;
};

}  // namespace

constexpr Implementation<Activation, ActivationSpec> sycl_activation{"sycl", takes_all, construct<SyclActivation>};
constexpr Implementation<GatedSilu, GatedSiluSpec> sycl_gated_silu{"sycl", takes_all, construct<SyclGatedSilu>};

}  // namespace ppengine::ops
