// Plain functions over flat memory, each one launch.
#include <ppengine/ops/elementwise.hpp>

#include <fmt/core.h>

#include <cmath>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/device/kernel_table.hpp>

namespace ppengine::ops {
namespace {

// All flat kernels end in (count, chunk); the others' arguments stand in front.
template <class... Args>
void launch_flat(Stream& stream, const Kernel& kernel, std::int64_t count, Args... args) {
  if (count <= 0) return;
  const Split split = split_elements(stream.device(), count);
  kernel.launch(stream, split.groups, split.size, args..., count, split.chunk);
}

PlainKernel cast_kernel(Type from, Type to) {
  if (from == Type::f32) return to == Type::bf16 ? PlainKernel::cast_f32_bf16 : PlainKernel::cast_f32_i32;
  if (from == Type::bf16) return to == Type::f32 ? PlainKernel::cast_bf16_f32 : PlainKernel::cast_bf16_i32;
  return to == Type::f32 ? PlainKernel::cast_i32_f32 : PlainKernel::cast_i32_bf16;
}

}  // namespace

void add(Stream& stream, Type type, const void* a, const void* b, void* dst, std::int64_t count) {
  launch_flat(stream, plain_kernel(stream.device(), PlainKernel::add_f32, type, "add"), count, a, b, dst);
}

void multiply(Stream& stream, Type type, const void* a, const void* b, void* dst, std::int64_t count) {
  launch_flat(stream, plain_kernel(stream.device(), PlainKernel::multiply_f32, type, "multiply"), count, a, b, dst);
}

void add_bias(Stream& stream, Type type, const void* src, const void* bias, void* dst, std::int64_t rows, std::int64_t width) {
  if (rows <= 0 || width <= 0) return;
  const Split split = split_rows(stream.device(), rows, width);
  plain_kernel(stream.device(), PlainKernel::add_bias_f32, type, "add_bias")
      .launch(stream, split.groups, split.size, src, bias, dst, rows, width, split.chunk);
}

void scale(Stream& stream, Type type, void* data, float factor, std::int64_t count) {
  launch_flat(stream, plain_kernel(stream.device(), PlainKernel::scale_f32, type, "scale"), count, data, factor);
}

void scale(Stream& stream, Type type, const void* src, void* dst, float factor, std::int64_t count) {
  launch_flat(stream, plain_kernel(stream.device(), PlainKernel::scaled_f32, type, "scale"), count, src, dst, factor);
}

void soft_cap(Stream& stream, Type type, const void* src, void* dst, float cap, std::int64_t count) {
  launch_flat(stream, plain_kernel(stream.device(), PlainKernel::soft_cap_f32, type, "soft cap"), count, src, dst, cap);
}

void soft_cap_backward(Stream& stream, Type type, const void* src, const void* diff_dst, void* diff_src, float cap, std::int64_t count) {
  launch_flat(stream, plain_kernel(stream.device(), PlainKernel::soft_cap_backward_f32, type, "soft cap"), count, src, diff_dst, diff_src,
              cap);
}

void fill(Stream& stream, Type type, void* data, float value, std::int64_t count) {
  const auto which = static_cast<PlainKernel>(static_cast<std::size_t>(PlainKernel::fill_f32) + static_cast<std::size_t>(type));
  launch_flat(stream, plain_kernel(stream.device(), which), count, data, value);
}

void cast(Stream& stream, Type from, const void* src, Type to, void* dst, std::int64_t count) {
  if (count <= 0) return;
  if (from == to) return stream.copy(dst, src, static_cast<std::size_t>(count) * size_of(from));
  launch_flat(stream, plain_kernel(stream.device(), cast_kernel(from, to)), count, src, dst);
}

void copy_strided(Stream& stream, const Tensor& src, const Tensor& dst) {
  if (src.shape != dst.shape || src.type != dst.type)
    throw ConfigError(fmt::format("copy: {} {} into {} {}", name_of(src.type), src.shape.text(), name_of(dst.type), dst.shape.text()));
  if (src.count() == 0) return;
  if (src.dense() && dst.dense()) return stream.copy(dst.data, src.data, src.bytes());
  // Six dimensions with ones in front, for the kernel.
  std::int64_t d[Shape::max_rank], s[Shape::max_rank], t[Shape::max_rank];
  for (int i = 0, at = src.shape.rank() - Shape::max_rank; i < Shape::max_rank; ++i, ++at) {
    d[i] = at < 0 ? 1 : src.shape[at];
    s[i] = at < 0 ? 0 : src.strides[at];
    t[i] = at < 0 ? 0 : dst.strides[at];
  }
  const std::int64_t rows = src.count() / d[5];
  const Split split = split_rows(stream.device(), rows, d[5]);
  const Kernel& kernel = plain_kernel(stream.device(), size_of(src.type) == 2 ? PlainKernel::copy_strided_2 : PlainKernel::copy_strided_4);
  kernel.launch(stream, split.groups, split.size, static_cast<const void*>(src.data), dst.data, rows, split.chunk, d[1], d[2], d[3], d[4],
                d[5], s[0], s[1], s[2], s[3], s[4], s[5], t[0], t[1], t[2], t[3], t[4], t[5]);
}

void gather_rows(Stream& stream, const float* table, const std::int32_t* rows, float* few, std::int64_t count, std::int64_t width) {
  if (count <= 0 || width <= 0) return;
  const Split split = split_rows(stream.device(), count, width);
  plain_kernel(stream.device(), PlainKernel::gather_rows_f32)
      .launch(stream, split.groups, split.size, table, rows, few, count, width, split.chunk);
}

void scatter_rows(Stream& stream, const float* few, const std::int32_t* rows, float* dst, std::int64_t count, std::int64_t width,
                  std::int64_t begin, std::int64_t end) {
  if (count <= 0 || width <= 0) return;
  const Split split = split_rows(stream.device(), count, width);
  plain_kernel(stream.device(), PlainKernel::scatter_rows_f32)
      .launch(stream, split.groups, split.size, few, rows, dst, count, width, begin, end, split.chunk);
}

void transpose(Stream& stream, const float* src, float* dst, std::int64_t rows, std::int64_t columns) {
  if (rows <= 0 || columns <= 0) return;
  Device& device = stream.device();
  const std::int64_t down = divide_up(rows, 16), across = divide_up(columns, 16);
  if (device.info().is_cpu) {
    const std::int64_t chunk = cpu_chunk(device, down * across, 4);
    plain_kernel(device, PlainKernel::transpose_cached_f32)
        .launch(stream, static_cast<std::size_t>(divide_up(down * across, chunk)), 16, src, dst, rows, columns, down * across, chunk);
  } else {
    plain_kernel(device, PlainKernel::transpose_f32)
        .launch_2d(stream, static_cast<std::size_t>(down), static_cast<std::size_t>(across), 16, 16, src, dst, rows, columns);
  }
}

void dropout(Stream& stream, Type type, const void* src, const void* add, void* dst, std::int64_t count, float p, std::uint64_t key,
             std::uint64_t first) {
  if (!(p >= 0.0f && p <= 1.0f)) throw ConfigError(fmt::format("dropout: p is {}, must lie in [0,1]", p));
  if (count <= 0) return;
  // An element is dropped when its random word is below p · 2³².
  const auto threshold = static_cast<std::uint32_t>(std::min(std::ceil(static_cast<double>(p) * 4294967296.0), 4294967295.0));
  const float factor = p < 1.0f ? 1.0f / (1.0f - p) : 0.0f;
  const auto units = static_cast<std::int64_t>((first + static_cast<std::uint64_t>(count) - 1) / 64 - first / 64) + 1;
  const bool cpu = stream.device().info().is_cpu;
  const std::size_t size_y = cpu ? 1 : 16;
  const std::int64_t chunk = cpu ? cpu_chunk(stream.device(), units, 16) : static_cast<std::int64_t>(size_y);
  const auto groups = static_cast<std::size_t>(divide_up(units, chunk));
  if (add)
    plain_kernel(stream.device(), PlainKernel::dropout_add_f32, type, "dropout")
        .launch_2d(stream, groups, 1, size_y, 16, src, add, dst, count, chunk, threshold, factor, key, first);
  else
    plain_kernel(stream.device(), PlainKernel::dropout_f32, type, "dropout")
        .launch_2d(stream, groups, 1, size_y, 16, src, dst, count, chunk, threshold, factor, key, first);
}

}  // namespace ppengine::ops
