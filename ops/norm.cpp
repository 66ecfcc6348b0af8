// Layer norm and RMS norm: checks and the list of implementations.
#include <ppengine/ops/norm.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::span<const Implementation<Norm, NormSpec>> Norm::implementations() {
  static const std::array list{cpu_norm, onednn_norm, sycl_norm};
  return list;
}

std::unique_ptr<Norm> Norm::make(Device& device, const NormSpec& spec) {
  const char* op = spec.kind == NormKind::layer ? "layer norm" : "RMS norm";
  if (spec.rows < 0 || spec.width <= 0) throw ConfigError(fmt::format("{}: a shape of [{},{}] is not possible", op, spec.rows, spec.width));
  if (spec.kind == NormKind::rms && spec.bias) throw ConfigError("RMS norm: there is no bias");
  if (spec.type == Type::i32) throw ConfigError(fmt::format("{}: only f32 and bf16", op));
  return make_first<Norm, NormSpec>(op, implementations(), device, spec);
}

std::vector<Considered> Norm::consider(const Device& device, const NormSpec& spec) {
  return ops::consider<Norm, NormSpec>(implementations(), device, spec);
}

}  // namespace ppengine::ops
