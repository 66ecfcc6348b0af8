// Linear: the list of implementations.
#include <ppengine/ops/linear.hpp>

#include <array>

#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

std::span<const Implementation<Linear, LinearSpec>> implementations() {
  static const std::array list{cpu_linear, onednn_linear, sycl_linear};
  return list;
}

}  // namespace

std::unique_ptr<Linear> Linear::make(Device& device, const LinearSpec& spec) {
  return make_first<Linear, LinearSpec>("linear", implementations(), device, spec);
}

std::vector<Considered> Linear::consider(const Device& device, const LinearSpec& spec) {
  return ops::consider<Linear, LinearSpec>(implementations(), device, spec);
}

// [out,in] is what oneDNN packs as it reads in the forward, and the other two directions do not depend on it (bench/linear_layouts.md).
WeightLayout preferred_layout(const Device&, std::int64_t, std::int64_t) { return WeightLayout::out_in; }

void clear_gradients(Stream& stream, const LinearSpec& spec, float* diff_weight, float* diff_bias, bool accumulate) {
  if (accumulate) return;
  stream.zero(diff_weight, static_cast<std::size_t>(spec.in * spec.out) * sizeof(float));
  if (spec.bias) stream.zero(diff_bias, static_cast<std::size_t>(spec.out) * sizeof(float));
}

}  // namespace ppengine::ops
