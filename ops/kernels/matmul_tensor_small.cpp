// Smaller products on tensor cores: 64 × 64 results for a work-group; and those of matrices that lie in memory in any way.
#ifdef __NVPTX__
#include "matmul_tensor.hpp"

using Small = Cut<2, 2, 2, 2>;
syclexp::work_group_static<Buffers<Small>> buffers;

TENSOR_PRODUCTS(small, Small, 4, bf16, bf16_bits)
TENSOR_PRODUCTS(small, Small, 4, bf16_f32, float)

// tile[row][k] of any matrix, element by element.
template <class Tile, int Threads>
inline void load_elements(unsigned char* tile, const bf16_bits* source, long first_row, long rows, long row_stride, long first, long depth,
                          long step, int thread) {
  constexpr int lines = Tile::lines, each = lines * tensor_depth / Threads;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int at = thread + i * Threads;
    const int row = step == 1 ? at / tensor_depth : at % lines, k = step == 1 ? at % tensor_depth : at / lines;
    const bool inside = first_row + row < rows && first + k < depth;
    const bf16_bits value = inside ? source[(first_row + row) * row_stride + (first + k) * step] : bf16_bits(0);
    *reinterpret_cast<bf16_bits*>(tile + Tile::place(row, k / chunk_elements) + k % chunk_elements * 2) = value;
  }
}

// Where rows begin anywhere, or neither direction is contiguous.
template <class Out>
inline void product_of_any(const bf16_bits* a, const bf16_bits* b, Out* c, const bf16_bits* bias, const Out* add, const MatmulShape& s,
                           int accumulate, Buffers<Small>& memory_of_tiles) {
  using C = Small;
  using A = TensorTile<C::rows, true, C::threads>;
  using B = TensorTile<C::columns, true, C::threads>;
  const Place<C> place(s);
  const unsigned memory = shared_address(&memory_of_tiles);
  const typename A::Reader read_a(memory, place.row, place.lane, false);
  const typename B::Reader read_b(memory + A::bytes, place.column, place.lane, true);
  a += place.outer * s.a_outer + place.inner * s.a_inner;
  b += place.outer * s.b_outer + place.inner * s.b_inner;
  Sums<C> sums = {};
  for (long first = 0; first < s.k; first += tensor_depth) {
    load_elements<A, C::threads>(memory_of_tiles.bytes, a, place.first_m, s.m, s.a_m, first, s.k, s.a_k, place.thread());
    load_elements<B, C::threads>(memory_of_tiles.bytes + A::bytes, b, place.first_n, s.n, s.b_n, first, s.k, s.b_k, place.thread());
    group_barrier_local();
    multiply_tiles<C, A, B>(sums, read_a, read_b, 0);
    group_barrier_local();
  }
  finish<C>(sums, place, c, bias, add, s, accumulate);
}

#define PRODUCT_OF_ANY(TYPE, OUT)                                                                                                    \
  KERNEL_TENSOR(4)                                                                                                                   \
  matmul_any_##TYPE(const bf16_bits* a, const bf16_bits* b, OUT* c, const bf16_bits* bias, const OUT* add, const MatmulShape* shape, \
                    int accumulate) {                                                                                                \
    product_of_any(a, b, c, bias, add, *shape, accumulate, buffers);                                                                 \
  }
PRODUCT_OF_ANY(bf16, bf16_bits)
PRODUCT_OF_ANY(bf16_f32, float)
#endif
