// The kernels behind plain functions (elementwise.hpp, optimizer.hpp): found by index, so that a call in a steady step looks up nothing.
#pragma once

#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/type.hpp>

namespace ppengine::ops {

enum class PlainKernel : std::uint8_t {
  add_f32,
  add_bf16,
  add_bias_f32,
  add_bias_bf16,
  multiply_f32,
  multiply_bf16,
  scale_f32,
  scale_bf16,
  scaled_f32,
  scaled_bf16,
  soft_cap_f32,
  soft_cap_bf16,
  soft_cap_backward_f32,
  soft_cap_backward_bf16,
  dropout_f32,
  dropout_bf16,
  dropout_add_f32,
  dropout_add_bf16,
  fill_f32,
  fill_bf16,
  fill_i32,
  cast_f32_bf16,
  cast_f32_i32,
  cast_bf16_f32,
  cast_bf16_i32,
  cast_i32_f32,
  cast_i32_bf16,
  copy_strided_2,
  copy_strided_4,
  gather_rows_f32,
  scatter_rows_f32,
  transpose_f32,
  transpose_cached_f32,
  sum_rows_f32,
  sum_rows_bf16,
  sum_partial,
  sum_squares_partial,
  sum_squares_chunks,
  sum_final,
  adamw,
  adamw_copy,
  adamw_narrow,
  sgd,
  count
};
static_assert(static_cast<std::size_t>(PlainKernel::count) <= plain_kernel_slots);

// Built and looked up on first use, kept in the device.
const Kernel& plain_kernel(Device& device, PlainKernel which);
// The one of a pair by type: `f32` must be followed by its bf16 twin. Other types are refused by name of the op.
const Kernel& plain_kernel(Device& device, PlainKernel f32, Type type, const char* op);

}  // namespace ppengine::ops
