// Matrix products with any strides.
#include "matmul_shape.hpp"
#include "tile.hpp"

// What a work-group shares. At namespace scope: anywhere else the run-time compiler (2026.2) crashes for CPUs.
syclexp::work_group_static<float[2 * tile_depth * tile_stride]> shared;

// c = alpha · a·b + bias[n] + add (+ c); bias and add may be null, add has c's strides and may be c.
template <class In, class Out>
inline void matmul(const In* a, const In* b, Out* c, const In* bias, const Out* add, const MatmulShape& s, int accumulate) {
  float* const a_tile = &shared[0];
  float* const b_tile = a_tile + tile_depth * tile_stride;
  const auto item = item_2d();
  const int y = item.get_local_id(0), x = item.get_local_id(1);
  const long tiles = (s.m + tile_side - 1) / tile_side;
  const long batch = item.get_group(0) / tiles;
  const long outer = batch / s.inner_batch, inner = batch % s.inner_batch;
  const long first_m = item.get_group(0) % tiles * tile_side, first_n = item.get_group(1) * tile_side;
  a += outer * s.a_outer + inner * s.a_inner;
  b += outer * s.b_outer + inner * s.b_inner;

  float sums[tile_rows][tile_rows] = {};
  for (long first_k = 0; first_k < s.k; first_k += tile_depth) {
    tile_load(a_tile, a, first_m, s.m, s.a_m, first_k, s.k, s.a_k, y, x);
    tile_load(b_tile, b, first_n, s.n, s.b_n, first_k, s.k, s.b_k, y, x);
    group_barrier_local();
    tile_multiply<tile_rows>(sums, a_tile, tile_stride, b_tile, tile_stride, y, x);
    group_barrier_local();
  }
  const long base = outer * s.c_outer + inner * s.c_inner;
#pragma unroll
  for (int i = 0; i < tile_rows; ++i) {
    const long m = first_m + y * tile_rows + i;
#pragma unroll
    for (int j = 0; j < tile_rows; ++j) {
      const long n = first_n + x + tile_threads * j;
      if (m >= s.m || n >= s.n) continue;
      const long at = base + m * s.c_m + n * s.c_n;
      float value = s.alpha * sums[i][j];
      if (bias) value += load(bias, n);
      if (add) value += load(add, at);
      if (accumulate) value += load(c, at);
      store(c, at, value);
    }
  }
}

KERNEL_TILE matmul_f32(const float* a, const float* b, float* c, const float* bias, const float* add, const MatmulShape* shape,
                       int accumulate) {
  matmul(a, b, c, bias, add, *shape, accumulate);
}
KERNEL_TILE matmul_bf16(const bf16_bits* a, const bf16_bits* b, bf16_bits* c, const bf16_bits* bias, const bf16_bits* add,
                        const MatmulShape* shape, int accumulate) {
  matmul(a, b, c, bias, add, *shape, accumulate);
}
KERNEL_TILE matmul_bf16_f32(const bf16_bits* a, const bf16_bits* b, float* c, const bf16_bits* bias, const float* add,
                            const MatmulShape* shape, int accumulate) {
  matmul(a, b, c, bias, add, *shape, accumulate);
}

// One row of few results, or few rows: a work-group of 16 × 16 work-items makes 16 columns of one row. Reads b along whichever direction is
// contiguous.
template <class In, class Out>
inline void matvec(const In* a, const In* b, Out* c, const In* bias, const Out* add, const MatmulShape& s, int accumulate) {
  float* const partial = &shared[0];
  const auto item = item_2d();
  const int y = item.get_local_id(0), x = item.get_local_id(1);
  const long m = item.get_group(0) % s.m, batch = item.get_group(0) / s.m;
  const long outer = batch / s.inner_batch, inner = batch % s.inner_batch;
  a += outer * s.a_outer + inner * s.a_inner + m * s.a_m;
  b += outer * s.b_outer + inner * s.b_inner;
  const long first_n = item.get_group(1) * tile_threads;
  const bool along_k = s.b_k == 1;
  const int column = along_k ? y : x, lane = along_k ? x : y;
  float sum = 0;
  if (first_n + column < s.n) {
    const In* const b_column = b + (first_n + column) * s.b_n;
    for (long k = lane; k < s.k; k += tile_threads) sum += load(a, k * s.a_k) * load(b_column, k * s.b_k);
  }
  partial[lane * (tile_threads + 1) + column] = sum;
  group_barrier_local();
  const long n = first_n + x;
  if (y != 0 || n >= s.n) return;
  sum = 0;
  for (int i = 0; i < tile_threads; ++i) sum += partial[i * (tile_threads + 1) + x];
  const long at = outer * s.c_outer + inner * s.c_inner + m * s.c_m + n * s.c_n;
  float value = s.alpha * sum;
  if (bias) value += load(bias, n);
  if (add) value += load(add, at);
  if (accumulate) value += load(c, at);
  store(c, at, value);
}

KERNEL_TILE matvec_f32(const float* a, const float* b, float* c, const float* bias, const float* add, const MatmulShape* shape,
                       int accumulate) {
  matvec(a, b, c, bias, add, *shape, accumulate);
}
KERNEL_TILE matvec_bf16(const bf16_bits* a, const bf16_bits* b, bf16_bits* c, const bf16_bits* bias, const bf16_bits* add,
                        const MatmulShape* shape, int accumulate) {
  matvec(a, b, c, bias, add, *shape, accumulate);
}
KERNEL_TILE matvec_bf16_f32(const bf16_bits* a, const bf16_bits* b, float* c, const bf16_bits* bias, const float* add,
                            const MatmulShape* shape, int accumulate) {
  matvec(a, b, c, bias, add, *shape, accumulate);
}
