// Reductions: column sums in one launch, whole sums in two.
#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/device/kernel_table.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::ops {
namespace {

constexpr std::int64_t most_groups = 256;

void reduce(Stream& stream, PlainKernel first_stage, const float* src, float* result, std::int64_t count, void* workspace) {
  Device& device = stream.device();
  if (count <= 0) return stream.zero(result, sizeof(float));
  const bool cpu = device.info().is_cpu;
  const std::int64_t most =
      cpu ? std::min(device.info().compute_units * static_cast<std::int64_t>(cpu_groups_per_core), most_groups) : most_groups;
  const std::int64_t unit = 4096;
  const std::int64_t chunk = divide_up(divide_up(count, most), unit) * unit;
  plain_kernel(device, first_stage)
      .launch(stream, static_cast<std::size_t>(divide_up(count, chunk)), reduction_group(device), src, static_cast<float*>(workspace),
              count, chunk);
  plain_kernel(device, PlainKernel::sum_final).launch(stream, 1, cpu_lanes, static_cast<const float*>(workspace), result);
}

}  // namespace

std::size_t reduce_workspace() { return partial_sums_bytes(most_groups); }

void sum(Stream& stream, const float* src, float* result, std::int64_t count, void* workspace) {
  reduce(stream, PlainKernel::sum_partial, src, result, count, workspace);
}

void sum_squares(Stream& stream, const float* src, float* result, std::int64_t count, void* workspace) {
  reduce(stream, PlainKernel::sum_squares_partial, src, result, count, workspace);
}

void sum_rows(Stream& stream, Type type, const void* src, float* sums, std::int64_t rows, std::int64_t columns, bool accumulate) {
  if (columns <= 0 || (rows <= 0 && accumulate)) return;
  const ColumnSplit split = split_columns(stream.device(), rows, columns);
  plain_kernel(stream.device(), PlainKernel::sum_rows_f32, type, "sum_rows")
      .launch_2d(stream, 1, split.groups, split.size_y, split.size_x, src, sums, rows, columns, accumulate ? 1 : 0);
}

}  // namespace ppengine::ops
