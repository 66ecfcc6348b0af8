// Tiles of matrices in local memory, and their product in registers. A work-group is 16 rows of 16 work-items: work-item (y,x) owns rows
// 4y..4y+3 and columns x, x+16, x+32, ... of the result, so that neighbours read neighbouring columns and share the rows' values.
#pragma once

#include "values.hpp"

constexpr int tile_side = 64;     // rows (and most often columns) of a work-group's result
constexpr int tile_depth = 16;    // steps of the sum that are staged in local memory at a time
constexpr int tile_threads = 16;  // work-items along each side
constexpr int tile_rows = tile_side / tile_threads;
constexpr int tile_stride = tile_side + 1;  // odd: columns of a tile lie in different banks

// A kernel over such work-groups. Saying the size makes it ten times as fast on CPUs, where the compiler then turns 16 work-items into a
// vector.
#define KERNEL_TILE                                                           \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<2>)) \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::work_group_size<16, 16>)) void
static_assert(tile_threads == 16);

inline void group_barrier_local() { sycl::group_barrier(syclext::this_work_item::get_work_group<2>()); }

// sums[i][j] += sum over k of a[k][4y+i] · b[k][x+16j]
template <int Columns, int Depth = tile_depth>
inline void tile_multiply(float (&sums)[tile_rows][Columns], const float* a, int a_stride, const float* b, int b_stride, int y, int x) {
#pragma unroll
  for (int k = 0; k < Depth; ++k) {
    float row[tile_rows], column[Columns];
#pragma unroll
    for (int i = 0; i < tile_rows; ++i) row[i] = a[k * a_stride + y * tile_rows + i];
#pragma unroll
    for (int j = 0; j < Columns; ++j) column[j] = b[k * b_stride + x + tile_threads * j];
#pragma unroll
    for (int i = 0; i < tile_rows; ++i)
#pragma unroll
      for (int j = 0; j < Columns; ++j) sums[i][j] += row[i] * column[j];
  }
}

// tile[k][r] = source[(first_row + r) · row_stride + (first + k) · step], zero outside rows × depth. Neighbouring work-items read along
// whichever direction is contiguous.
template <class T>
inline void tile_load(float* tile, const T* source, long first_row, long rows, long row_stride, long first, long depth, long step, int y,
                      int x) {
  const bool along_depth = step == 1;
#pragma unroll
  for (int i = 0; i < tile_rows; ++i) {
    const int k = along_depth ? x : y;
    const int r = along_depth ? y + tile_threads * i : x + tile_threads * i;
    const bool inside = first_row + r < rows && first + k < depth;
    tile[k * tile_stride + r] = inside ? load(source, (first_row + r) * row_stride + (first + k) * step) : 0.0f;
  }
}
