// Activations: checks and the list of implementations.
#include <ppengine/ops/activation.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::span<const Implementation<Activation, ActivationSpec>> Activation::implementations() {
  static const std::array list{cpu_activation, onednn_activation, sycl_activation};
  return list;
}

std::unique_ptr<Activation> Activation::make(Device& device, const ActivationSpec& spec) {
  if (spec.count < 0) throw ConfigError(fmt::format("activation: {} elements are not possible", spec.count));
  if (spec.type == Type::i32) throw ConfigError("activation: only f32 and bf16");
  return make_first<Activation, ActivationSpec>("activation", implementations(), device, spec);
}

std::vector<Considered> Activation::consider(const Device& device, const ActivationSpec& spec) {
  return ops::consider<Activation, ActivationSpec>(implementations(), device, spec);
}

std::unique_ptr<GatedSilu> GatedSilu::make(Device& device, const GatedSiluSpec& spec) {
  if (spec.rows < 0 || spec.width <= 0 || spec.stride < spec.width)
    throw ConfigError(fmt::format("gated SiLU: [{},{}] with rows {} apart is not possible", spec.rows, spec.width, spec.stride));
  if (spec.type == Type::i32) throw ConfigError("gated SiLU: only f32 and bf16");
  static const std::array list{sycl_gated_silu};
  return make_first<GatedSilu, GatedSiluSpec>("gated SiLU", list, device, spec);
}

}  // namespace ppengine::ops
