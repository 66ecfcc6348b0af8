// Linear: the list of implementations.
#include <ppengine/ops/linear.hpp>

#include <array>

#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/linear_implementations.hpp>

namespace ppengine::ops {
namespace {

constexpr std::array<Implementation<Linear, LinearSpec>, 2> implementations{{
    {"onednn", onednn_linear_refusal, make_onednn_linear},
    {"sycl", sycl_linear_refusal, make_sycl_linear},
}};

}  // namespace

std::unique_ptr<Linear> Linear::make(Device& device, const LinearSpec& spec) {
  return make_first<Linear, LinearSpec>("linear", implementations, device, spec);
}

std::vector<Considered> Linear::consider(const Device& device, const LinearSpec& spec) {
  return ops::consider<Linear, LinearSpec>(implementations, device, spec);
}

// [out,in] is what oneDNN packs as it reads in the forward, and the other two directions do not depend on it (bench/linear_layouts.md).
WeightLayout preferred_layout(const Device&, int64_t, int64_t) { return WeightLayout::out_in; }

ColumnSums::ColumnSums(Device& device, Type type)
    : kernel_(&device.kernels().get("matmul", type == Type::bf16 ? "column_sums_bf16" : "column_sums_f32")) {}

void ColumnSums::run(Stream& stream, const void* src, float* sums, int64_t rows, int64_t columns, bool accumulate) const {
  constexpr size_t columns_per_group = 32, lanes = 8;  // as in kernels/matmul.cpp
  const size_t groups = (static_cast<size_t>(columns) + columns_per_group - 1) / columns_per_group;
  kernel_->launch_2d(stream, 1, groups, lanes, columns_per_group, src, sums, rows, columns, int32_t{accumulate});
}

void clear_gradients(Stream& stream, const LinearSpec& spec, float* diff_weight, float* diff_bias, bool accumulate) {
  if (accumulate) return;
  stream.zero(diff_weight, static_cast<size_t>(spec.in * spec.out) * sizeof(float));
  if (spec.bias) stream.zero(diff_bias, static_cast<size_t>(spec.out) * sizeof(float));
}

}  // namespace ppengine::ops
