// The kernels behind plain functions, kept per device.
#include <ppengine/ops/device/kernel_table.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

struct Name {
  const char *file, *kernel;
};

constexpr Name names[] = {
    {"elementwise", "add_f32"},
    {"elementwise", "add_bf16"},
    {"elementwise", "add_bias_f32"},
    {"elementwise", "add_bias_bf16"},
    {"elementwise", "multiply_f32"},
    {"elementwise", "multiply_bf16"},
    {"elementwise", "scale_f32"},
    {"elementwise", "scale_bf16"},
    {"elementwise", "scaled_f32"},
    {"elementwise", "scaled_bf16"},
    {"elementwise", "soft_cap_f32"},
    {"elementwise", "soft_cap_bf16"},
    {"elementwise", "soft_cap_backward_f32"},
    {"elementwise", "soft_cap_backward_bf16"},
    {"elementwise", "dropout_f32"},
    {"elementwise", "dropout_bf16"},
    {"elementwise", "dropout_add_f32"},
    {"elementwise", "dropout_add_bf16"},
    {"elementwise", "fill_f32"},
    {"elementwise", "fill_bf16"},
    {"elementwise", "fill_i32"},
    {"elementwise", "cast_f32_bf16"},
    {"elementwise", "cast_f32_i32"},
    {"elementwise", "cast_bf16_f32"},
    {"elementwise", "cast_bf16_i32"},
    {"elementwise", "cast_i32_f32"},
    {"elementwise", "cast_i32_bf16"},
    {"elementwise", "copy_strided_2"},
    {"elementwise", "copy_strided_4"},
    {"elementwise", "gather_rows_f32"},
    {"elementwise", "scatter_rows_f32"},
    {"elementwise", "transpose_f32"},
    {"elementwise", "transpose_cached_f32"},
    {"optimizer", "sum_rows_f32"},
    {"optimizer", "sum_rows_bf16"},
    {"optimizer", "sum_partial"},
    {"optimizer", "sum_squares_partial"},
    {"optimizer", "sum_squares_chunks"},
    {"optimizer", "sum_final"},
    {"optimizer", "adamw"},
    {"optimizer", "adamw_copy"},
    {"optimizer", "adamw_narrow"},
    {"optimizer", "sgd"},
};
static_assert(std::size(names) == static_cast<std::size_t>(PlainKernel::count));

}  // namespace

const Kernel& plain_kernel(Device& device, PlainKernel which) {
  const auto index = static_cast<std::size_t>(which);
  auto& slot = device.impl().plain_kernels[index];
  if (const Kernel* known = slot.load(std::memory_order_acquire)) return *known;
  const Kernel& found = device.kernels().get(names[index].file, names[index].kernel);
  slot.store(&found, std::memory_order_release);
  return found;
}

const Kernel& plain_kernel(Device& device, PlainKernel f32, Type type, const char* op) {
  if (type == Type::i32) throw ConfigError(fmt::format("{}: i32 is not supported, only f32 and bf16", op));
  return plain_kernel(device, static_cast<PlainKernel>(static_cast<std::size_t>(f32) + (type == Type::bf16 ? 1 : 0)));
}

const Kernel& typed_kernel(Device& device, std::string_view file, std::string_view name, Type type, bool wide) {
  return device.kernels().get(file, fmt::format("{}_{}{}", name, name_of(type), wide ? "_wide" : ""));
}

}  // namespace ppengine::ops
