// Flat kernels: sums, products, scaling, casts, copies between strides, transposition, dropout.
#include "philox.hpp"
#include "values.hpp"

#define STAMP(SUFFIX, T)                                                                                                        \
  KERNEL_1D add_##SUFFIX(const T* a, const T* b, T* dst, long count, long chunk) {                                              \
    for_chunk(count, chunk, [=](long i) { store(dst, i, load(a, i) + load(b, i)); });                                           \
  }                                                                                                                             \
  KERNEL_1D multiply_##SUFFIX(const T* a, const T* b, T* dst, long count, long chunk) {                                         \
    for_chunk(count, chunk, [=](long i) { store(dst, i, load(a, i) * load(b, i)); });                                           \
  }                                                                                                                             \
  KERNEL_1D scale_##SUFFIX(T* data, float factor, long count, long chunk) {                                                     \
    for_chunk(count, chunk, [=](long i) { store(data, i, load(data, i) * factor); });                                           \
  }                                                                                                                             \
  KERNEL_1D scaled_##SUFFIX(const T* src, T* dst, float factor, long count, long chunk) {                                       \
    for_chunk(count, chunk, [=](long i) { store(dst, i, load(src, i) * factor); });                                             \
  }                                                                                                                             \
  KERNEL_1D soft_cap_##SUFFIX(const T* src, T* dst, float cap, long count, long chunk) {                                        \
    for_chunk(count, chunk, [=](long i) { store(dst, i, cap * sycl::tanh(load(src, i) / cap)); });                              \
  }                                                                                                                             \
  KERNEL_1D soft_cap_backward_##SUFFIX(const T* src, const T* diff_dst, T* diff_src, float cap, long count, long chunk) {       \
    for_chunk(count, chunk, [=](long i) {                                                                                       \
      const float share = sycl::tanh(load(src, i) / cap);                                                                       \
      store(diff_src, i, load(diff_dst, i) * (1.0f - share * share));                                                           \
    });                                                                                                                         \
  }                                                                                                                             \
  KERNEL_1D add_bias_##SUFFIX(const T* src, const T* bias, T* dst, long rows, long width, long chunk) {                         \
    for_rows(rows, chunk, [=](long row) {                                                                                       \
      for_range(0, width, [=](long i) { store(dst, row * width + i, load(src, row * width + i) + load(bias, i)); });            \
    });                                                                                                                         \
  }                                                                                                                             \
  KERNEL_2D dropout_##SUFFIX(const T* src, T* dst, long count, long chunk, unsigned threshold, float factor, unsigned long key, \
                             unsigned long first) {                                                                             \
    for_dropout(count, chunk, threshold, factor, key, first, [=](long i, float keep) { store(dst, i, load(src, i) * keep); });  \
  }                                                                                                                             \
  KERNEL_2D dropout_add_##SUFFIX(const T* src, const T* add, T* dst, long count, long chunk, unsigned threshold, float factor,  \
                                 unsigned long key, unsigned long first) {                                                      \
    for_dropout(count, chunk, threshold, factor, key, first,                                                                    \
                [=](long i, float keep) { store(dst, i, load(src, i) * keep + load(add, i)); });                                \
  }
FOR_EACH_TYPE(STAMP)
#undef STAMP

#define STAMP(SUFFIX, T)                                                  \
  KERNEL_1D fill_##SUFFIX(T* data, float value, long count, long chunk) { \
    for_chunk(count, chunk, [=](long i) { store(data, i, value); });      \
  }
FOR_EACH_TYPE(STAMP)
STAMP(i32, int)
#undef STAMP

#define CAST(NAME, FROM, TO)                                               \
  KERNEL_1D NAME(const FROM* src, TO* dst, long count, long chunk) {       \
    for_chunk(count, chunk, [=](long i) { store(dst, i, load(src, i)); }); \
  }
CAST(cast_f32_bf16, float, bf16_bits)
CAST(cast_f32_i32, float, int)
CAST(cast_bf16_f32, bf16_bits, float)
CAST(cast_bf16_i32, bf16_bits, int)
CAST(cast_i32_f32, int, float)
CAST(cast_i32_bf16, int, bf16_bits)
#undef CAST

// The last dimension runs over the work-items, the others over the work-groups. Unused dimensions are 1 in front.
#define COPY(NAME, T)                                                                                                                    \
  KERNEL_1D NAME(const T* src, T* dst, long rows, long chunk, long d0, long d1, long d2, long d3, long width, long s0, long s1, long s2, \
                 long s3, long s4, long s5, long t0, long t1, long t2, long t3, long t4, long t5) {                                      \
    for_rows(rows, chunk, [=](long row) {                                                                                                \
      const long i4 = row % d3, r3 = row / d3, i3 = r3 % d2, r2 = r3 / d2, i2 = r2 % d1, r1 = r2 / d1, i1 = r1 % d0, i0 = r1 / d0;       \
      const T* from = src + i0 * s0 + i1 * s1 + i2 * s2 + i3 * s3 + i4 * s4;                                                             \
      T* to = dst + i0 * t0 + i1 * t1 + i2 * t2 + i3 * t3 + i4 * t4;                                                                     \
      for_range(0, width, [=](long i) { to[i * t5] = from[i * s5]; });                                                                   \
    });                                                                                                                                  \
  }
COPY(copy_strided_2, unsigned short)
COPY(copy_strided_4, unsigned)
#undef COPY

// few[k,:] = table[rows[k],:]
KERNEL_1D gather_rows_f32(const float* table, const int* rows, float* few, long count, long width, long chunk) {
  for_rows(count, chunk, [=](long k) {
    const float* from = table + rows[k] * width;
    for_range(0, width, [=](long i) { few[k * width + i] = from[i]; });
  });
}

// The reverse, for the elements [begin, end) of the table alone; dst is the first of them.
KERNEL_1D scatter_rows_f32(const float* few, const int* rows, float* dst, long count, long width, long begin, long end, long chunk) {
  for_rows(count, chunk, [=](long k) {
    const long first = rows[k] * width - begin;
    for_range(greater(0l, -first), lesser(width, end - begin - first), [=](long i) { dst[first + i] = few[k * width + i]; });
  });
}

// dst[columns,rows] = srcᵀ, tile by tile through local memory: reads run along rows of src, writes along rows of dst.
// The local size is (16, 16); one column more than needed keeps the banks of local memory apart.
syclexp::work_group_static<float[16][17]> transpose_tile;

KERNEL_2D transpose_f32(const float* src, float* dst, long rows, long columns) {
  const auto item = item_2d();
  float (&tile)[16][17] = transpose_tile;
  const long y = item.get_local_id(0), x = item.get_local_id(1);
  const long row = item.get_group(0) * 16, column = item.get_group(1) * 16;
  if (row + y < rows && column + x < columns) tile[y][x] = src[(row + y) * columns + column + x];
  sycl::group_barrier(item.get_group());
  if (column + y < columns && row + x < rows) dst[(column + y) * rows + row + x] = tile[x][y];
}

// The same where local memory is no faster than the cache (CPUs): 16 work-items take a tile of 16 x 16, its 16 source rows staying in L1.
KERNEL_1D transpose_cached_f32(const float* src, float* dst, long rows, long columns, long tiles, long chunk) {
  const long lane = item_1d().get_local_id(0);
  const long across = (rows + 15) / 16;
  for_rows(tiles, chunk, [=](long tile) {
    const long row = tile % across * 16 + lane, column = tile / across * 16;
    if (row >= rows) return;
    const float* from = src + row * columns + column;
    float* to = dst + column * rows + row;
    const long end = lesser(columns - column, 16l);
    for (long i = 0; i < end; ++i) to[i * rows] = from[i];
  });
}
