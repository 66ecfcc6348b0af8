// How a launch of our kernels is cut into work-groups, on CPUs and GPUs.
#pragma once

#include <algorithm>
#include <cstdint>

#include <ppengine/ops/detail/divide_up.hpp>
#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/type.hpp>

namespace ppengine::ops {

// A CPU carries out a work-group on one core, its work-items as lanes of vector registers: small groups with long loops, so that memory
// is read front to back. A GPU wants many work-items side by side.
struct Split {
  std::size_t groups, size;
  std::int64_t chunk;  // elements, rows or units for each group
};

constexpr std::size_t cpu_lanes = 16;           // one AVX-512 register of f32; two of AVX2
constexpr std::size_t cpu_groups_per_core = 4;  // to even out cores that are busy elsewhere

// Partial sums of a reduction: their number, then a pair for each sub-group of each work-group.
constexpr std::size_t gpu_reduction_group = 256, smallest_sub_group = 4;
inline std::size_t reduction_group(const Device& device) { return device.info().is_cpu ? cpu_lanes : gpu_reduction_group; }
constexpr std::size_t partial_sums_bytes(std::size_t groups) {
  return (1 + groups * (gpu_reduction_group / smallest_sub_group)) * 2 * sizeof(float);
}

inline std::int64_t cpu_chunk(const Device& device, std::int64_t count, std::int64_t smallest) {
  const auto groups = static_cast<std::int64_t>(static_cast<std::size_t>(device.info().compute_units) * cpu_groups_per_core);
  return divide_up(std::max(divide_up(count, groups), smallest), smallest) * smallest;
}

inline Split split_elements(const Device& device, std::int64_t count) {
  const bool cpu = device.info().is_cpu;
  const std::size_t size = cpu ? cpu_lanes : 256;
  const std::int64_t chunk = cpu ? cpu_chunk(device, count, 1024) : static_cast<std::int64_t>(size) * 4;
  return {static_cast<std::size_t>(divide_up(count, chunk)), size, chunk};
}

// One work-group per row at a time; `width` elements of it shared by the group's work-items.
inline Split split_rows(const Device& device, std::int64_t rows, std::int64_t width) {
  if (device.info().is_cpu) {
    const std::int64_t chunk = cpu_chunk(device, rows, std::max<std::int64_t>(1, 1024 / std::max<std::int64_t>(width, 1)));
    return {static_cast<std::size_t>(divide_up(rows, chunk)), cpu_lanes, chunk};
  }
  std::size_t size = 32;
  const std::size_t largest = width > 8192 ? 1024 : 256;
  while (size < largest && static_cast<std::int64_t>(size) < width) size *= 2;
  return {static_cast<std::size_t>(rows), std::min(size, static_cast<std::size_t>(device.info().max_work_group)), 1};
}

// Rows that teams reduce (ops/kernels/rows.hpp): a sub-group has a row, or a whole work-group has a wide one.
struct TeamSplit : Split {
  bool wide;
};

inline TeamSplit split_team_rows(const Device& device, std::int64_t rows, std::int64_t width) {
  if (device.info().is_cpu) return {split_rows(device, rows, width), false};
  if (width > 1024) return {split_rows(device, rows, width), true};
  const std::int64_t rows_per_group = 4;  // sub-groups of 32 in a work-group of 128; narrower ones take turns
  return {{static_cast<std::size_t>(divide_up(rows, rows_per_group)), 128, rows_per_group}, false};
}

// A column sum: `groups` in x, each of size_y rows by size_x columns.
struct ColumnSplit {
  std::size_t groups, size_y, size_x;
};

inline ColumnSplit split_columns(const Device& device, std::int64_t rows, std::int64_t width) {
  if (device.info().is_cpu) return {static_cast<std::size_t>(divide_up(width, cpu_lanes)), 1, cpu_lanes};
  std::size_t size_y = 32;
  while (size_y > 1 && static_cast<std::int64_t>(size_y) > rows) size_y /= 2;
  return {static_cast<std::size_t>(divide_up(width, 32)), size_y, 32};
}

// Looks up "name_f32" or "name_bf16", with "_wide" behind it for whole work-groups.
const Kernel& typed_kernel(Device& device, std::string_view file, std::string_view name, Type type, bool wide = false);

}  // namespace ppengine::ops
