// Softmax: checks and the list of implementations.
#include <ppengine/ops/softmax.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::span<const Implementation<Softmax, SoftmaxSpec>> Softmax::implementations() {
  static const std::array list{onednn_softmax, sycl_softmax};
  return list;
}

std::unique_ptr<Softmax> Softmax::make(Device& device, const SoftmaxSpec& spec) {
  if (spec.rows < 0 || spec.width <= 0)
    throw ConfigError(fmt::format("softmax: a shape of [{},{}] is not possible", spec.rows, spec.width));
  if (spec.type == Type::i32) throw ConfigError("softmax: only f32 and bf16");
  return make_first<Softmax, SoftmaxSpec>("softmax", implementations(), device, spec);
}

std::vector<Considered> Softmax::consider(const Device& device, const SoftmaxSpec& spec) {
  return ops::consider<Softmax, SoftmaxSpec>(implementations(), device, spec);
}

}  // namespace ppengine::ops
