// Products of bf16 matrices on NVIDIA's tensor cores (sm_80 and later), whose operands are contiguous along the sum or across it.
#pragma once

#include "matmul_shape.hpp"
#include "tensor_tiles.hpp"

// The work of a sub-group: so many times 16 rows by so many times 16 columns of the result.
template <int WarpsM, int WarpsN, int TilesM, int TilesN>
struct Cut {
  static constexpr int warps_n = WarpsN, tiles_m = TilesM, tiles_n = TilesN;
  static constexpr int threads = WarpsM * WarpsN * 32;
  static constexpr int rows = WarpsM * TilesM * 16, columns = WarpsN * TilesN * 16;
};
constexpr int unrolled = 4;  // tiles of the main loop: even, so that buffers are known where it is compiled

template <class C>
struct alignas(128) Buffers {
  unsigned char bytes[2 * (C::rows + C::columns) * tensor_depth * 2];
};

// A work-group's place in the product.
template <class C>
struct Place {
  long first_m, first_n, outer, inner;
  int warp, lane, row, column;  // of the sub-group's result within the work-group's

  explicit Place(const MatmulShape& s) {
    const auto item = item_2d();
    const long tiles = (s.m + C::rows - 1) / C::rows, batch = item.get_group(1) / tiles;
    first_m = item.get_group(1) % tiles * C::rows;
    first_n = item.get_group(0) * C::columns;
    outer = batch / s.inner_batch, inner = batch % s.inner_batch;
    warp = item.get_local_id(0), lane = item.get_local_id(1);
    row = warp / C::warps_n * C::tiles_m * 16, column = warp % C::warps_n * C::tiles_n * 16;
  }
  int thread() const { return warp * 32 + lane; }
};

template <class C>
using Sums = float[C::tiles_m][2 * C::tiles_n][4];

// sums += a·b of one tile in depth
template <class C, class A, class B>
ALL_IN_REGISTERS void multiply_tiles(Sums<C>& sums, const typename A::Reader& a, const typename B::Reader& b, int buffer) {
#pragma unroll
  for (int step = 0; step < tensor_depth / step_depth; ++step) {
    unsigned rows[C::tiles_m][4], columns[C::tiles_n][4];
#pragma unroll
    for (int i = 0; i < C::tiles_m; ++i) a.read(rows[i], step, i, buffer);
#pragma unroll
    for (int j = 0; j < C::tiles_n; ++j) b.read(columns[j], step, j, buffer);
#pragma unroll
    for (int i = 0; i < C::tiles_m; ++i)
#pragma unroll
      for (int j = 0; j < 2 * C::tiles_n; ++j) tensor_multiply(sums[i][j], rows[i], &columns[j / 2][j % 2 * 2]);
  }
}

// c = alpha · sums + bias[n] + add (+ c); c's columns are neighbours.
template <class C, class Out>
ALL_IN_REGISTERS void finish(const Sums<C>& sums, const Place<C>& place, Out* c, const bf16_bits* bias, const Out* add,
                             const MatmulShape& s, int accumulate) {
  const long first_n = place.first_n + place.column + place.lane % 4 * 2;
  const int columns = static_cast<int>(lesser(s.n - first_n, C::columns));
  if (bias) bias += first_n;
#pragma unroll
  for (int i = 0; i < 2 * C::tiles_m; ++i) {
    const long m = place.first_m + place.row + i * 8 + place.lane / 4;
    if (m >= s.m) continue;
    const long row = place.outer * s.c_outer + place.inner * s.c_inner + m * s.c_m + first_n;
#pragma unroll
    for (int j = 0; j < 4 * C::tiles_n; ++j) {
      const int n = j / 2 * 8 + j % 2;
      if (n >= columns) continue;
      float value = s.alpha * sums[i / 2][j / 2][i % 2 * 2 + j % 2];
      if (bias) value += load(bias, n);
      if (add) value += load(add + row, n);
      if (accumulate) value += load(c + row, n);
      store(c + row, n, value);
    }
  }
}

// Tiles of a and b are copied in turn into two buffers: while one is multiplied, the other is filled.
template <class C, bool AAlong, bool BAlong, class Out>
inline void product(const bf16_bits* a, const bf16_bits* b, Out* c, const bf16_bits* bias, const Out* add, const MatmulShape& s,
                    int accumulate, const Buffers<C>* buffers) {
  using A = TensorTile<C::rows, AAlong, C::threads>;
  using B = TensorTile<C::columns, BAlong, C::threads>;
  constexpr int both = A::bytes + B::bytes;
  const Place<C> place(s);
  const unsigned memory = shared_address(buffers);
  typename A::Source from_a(a + place.outer * s.a_outer + place.inner * s.a_inner, place.first_m, s.m, AAlong ? s.a_m : s.a_k, memory,
                            place.thread());
  typename B::Source from_b(b + place.outer * s.b_outer + place.inner * s.b_inner, place.first_n, s.n, BAlong ? s.b_n : s.b_k,
                            memory + A::bytes, place.thread());
  const typename A::Reader read_a(memory, place.row, place.lane, false);
  const typename B::Reader read_b(memory + A::bytes, place.column, place.lane, true);

  Sums<C> sums = {};
  const int tiles = (s.k + tensor_depth - 1) / tensor_depth, whole = s.k / tensor_depth;
  from_a.copy(0, 0, s.k);
  from_b.copy(0, 0, s.k);
  commit_copies();
  int tile = 0;
  for (; tile + unrolled < whole; tile += unrolled) {
#pragma unroll
    for (int i = 0; i < unrolled; ++i) {
      const int now = i % 2 * both, next = (i + 1) % 2 * both;
      finish_copies<0>();
      group_barrier_local();  // the tile is there for all, and nobody reads the one before it any more
      from_a.copy((i + 1) * tensor_depth, next);
      from_b.copy((i + 1) * tensor_depth, next);
      commit_copies();
      multiply_tiles<C, A, B>(sums, read_a, read_b, now);
    }
    from_a.advance(unrolled * tensor_depth);
    from_b.advance(unrolled * tensor_depth);
  }
  for (int done = tile; tile < tiles; ++tile) {
    const int now = tile % 2 * both, next = both - now, ahead = (tile + 1 - done) * tensor_depth;
    finish_copies<0>();
    group_barrier_local();
    if (tile + 1 < tiles) {
      const long left = s.k - static_cast<long>(tile + 1) * tensor_depth;
      from_a.copy(ahead, next, left);
      from_b.copy(ahead, next, left);
      commit_copies();
    }
    multiply_tiles<C, A, B>(sums, read_a, read_b, now);
  }
  finish<C>(sums, place, c, bias, add, s, accumulate);
}

#define KERNEL_TENSOR(WARPS)                                                  \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<2>)) \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::work_group_size<WARPS, 32>)) void
// LAYOUT: whether a and b are contiguous along the sum (k) or across it (m, n).
#define TENSOR_PRODUCT(SIZE, CUT, WARPS, LAYOUT, A_ALONG, B_ALONG, TYPE, OUT)                                              \
  KERNEL_TENSOR(WARPS)                                                                                                     \
  matmul_##SIZE##_##LAYOUT##_##TYPE(const bf16_bits* a, const bf16_bits* b, OUT* c, const bf16_bits* bias, const OUT* add, \
                                    const MatmulShape* shape, int accumulate) {                                            \
    product<CUT, A_ALONG, B_ALONG>(a, b, c, bias, add, *shape, accumulate, &buffers);                                      \
  }
#define TENSOR_PRODUCTS(SIZE, CUT, WARPS, TYPE, OUT)           \
  TENSOR_PRODUCT(SIZE, CUT, WARPS, kk, true, true, TYPE, OUT)  \
  TENSOR_PRODUCT(SIZE, CUT, WARPS, kn, true, false, TYPE, OUT) \
  TENSOR_PRODUCT(SIZE, CUT, WARPS, mn, false, false, TYPE, OUT)
