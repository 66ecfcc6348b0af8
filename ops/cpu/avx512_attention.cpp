// Compiled for AVX-512 whatever the build's target is: nothing that other files could be linked to may be defined here, so no standard
// library but for types.
#include <ppengine/ops/cpu/avx512_attention.hpp>

#include <ppengine/ops/cpu/avx512_lanes.hpp>

namespace ppengine::ops::cpu::avx512 {
namespace {

constexpr int unroll = 4;            // steps of a tile
constexpr int rows_per_pointer = 3;  // one register holds the distance of rows: x86 addresses reach one and two of them
static_assert(tile_height % rows_per_pointer == 0 && panel_width == 2 * lanes);

int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }

// The tile at column n of c: one or two registers wide.
template <int Height, int Vectors, bool Transposed>
PPENGINE_INLINE void multiply_tile(const RowsByPanels& of, const float* line, int64_t n) {
  __m512 sums[Height][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) sums[i][j] = all(0);

  // Pointers of which g++ does not know that they belong together: else it takes one, and offsets for every row and step that it reads
  // from the stack, which takes as long as the values themselves.
  constexpr int pointers = Transposed ? 1 : (Height + rows_per_pointer - 1) / rows_per_pointer;
  const float* a[pointers];
  int64_t row_a = of.row_a;
  asm("" : "+r"(row_a));
#pragma GCC unroll 4
  for (int i = 0; i < pointers; ++i) {
    a[i] = of.a + i * rows_per_pointer * of.row_a;
    asm("" : "+r"(a[i]));
  }
  const auto add_step = [&](int step) __attribute__((always_inline)) {
    __m512 column[Vectors];
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) column[j] = _mm512_load_ps(line + step * panel_width + j * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      const float* const from = Transposed ? a[0] + i : a[i / rows_per_pointer % pointers] + i % rows_per_pointer * row_a + step;
      const __m512 value = all(*from);
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; ++j) sums[i][j] = fma(value, column[j], sums[i][j]);
    }
    if (Transposed) a[0] += row_a;
  };
  const auto advance = [&](int steps) __attribute__((always_inline)) {
    line += steps * panel_width;
    if (Transposed) return;
#pragma GCC unroll 4
    for (int i = 0; i < pointers; ++i) a[i] += steps;
  };
  int64_t left = of.depth;
  for (; left >= unroll; left -= unroll) {
#pragma GCC unroll 4
    for (int step = 0; step < unroll; ++step) add_step(step);
    advance(unroll);
  }
  for (; left > 0; --left) {
    add_step(0);
    advance(1);
  }
#pragma GCC unroll 2
  for (int j = 0; j < Vectors; ++j) {
    const __mmask16 there = first(of.width - n - j * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      float* const c = of.c + i * of.row_c + n + j * lanes;
      if (of.add) sums[i][j] += _mm512_maskz_loadu_ps(there, c);
      if (of.factors) sums[i][j] *= all(of.factors[i]);
      _mm512_mask_storeu_ps(c, there, sums[i][j]);
    }
  }
}

template <int Height, bool Transposed>
void multiply_rows(const RowsByPanels& of) {
  const float* panel = of.panels;
  int64_t n = 0;
  for (; n + lanes < of.width; n += panel_width, panel += of.panel) multiply_tile<Height, 2, Transposed>(of, panel, n);
  if (n < of.width) multiply_tile<Height, 1, Transposed>(of, panel, n);
}

constexpr float log2_e = 1.44269504088896341f;

// 2^x where it is wanted and x, which is not much above 0, not below -126: there results leave the normal range. Else 0; NaN for NaN. To
// two units in the last place: the polynomial is a minimax one for |f| <= 1/2. Softmax is a tenth of all that attention does, and this
// takes two thirds of the time of exponential().
PPENGINE_INLINE __m512 power_of_two(__m512 x, __mmask16 wanted) {
  const __m512 rounding = all(12582912.0f);  // 1.5 · 2^23
  const __m512 n = (x + rounding) - rounding, f = x - n;
  __m512 p = fma(all(1.326472615e-3f), f, 9.671512991e-3f);
  p = fma(p, f, 5.550733581e-2f);
  p = fma(p, f, 2.402224243e-1f);
  p = fma(p, f, 6.931470037e-1f);
  p = fma(p, f, 1.0f);
  return _mm512_maskz_scalef_ps(_mm512_kand(wanted, at_least(x, -126.0f)), p, n);
}

// body(key, which of its 16 are seen) for what row i computes; the mask is a constant where all are.
template <class Body>
PPENGINE_INLINE void for_keys(const Scores& of, int64_t i, Body body) {
  const int64_t seen = lesser(of.seen + i, of.keys), last = lesser(of.seen + of.height - 1, of.keys);
  int64_t key = 0;
  for (; key + lanes <= seen; key += lanes) body(key, __mmask16{0xffff});
  for (; key < last; key += lanes) body(key, first(seen - key));
}

}  // namespace

void multiply(const RowsByPanels& product) {
  with_height<tile_height>(product.height, [&](auto height) {
    product.transposed_a ? multiply_rows<height.value, true>(product) : multiply_rows<height.value, false>(product);
  });
}

void softmax(const Scores& of, float* scores, float* largest, float* sums, float* factors) {
  const __m512 scale = all(of.scale * log2_e);
  const __mmask16 rows = first(of.height);
  const __m512 before = _mm512_maskz_loadu_ps(rows, largest);
  for (int64_t i = 0; i < of.height; ++i) {
    const float* const row = scores + i * of.row;
    __m512 most = all(largest[i]);
    for_keys(of, i, [&](int64_t key, __mmask16 seen) __attribute__((always_inline)) {
      most = _mm512_mask_max_ps(most, seen, most, scale * _mm512_loadu_ps(row + key));
    });
    largest[i] = _mm512_reduce_max_ps(most);
  }
  const __m512 factor = power_of_two(before - _mm512_maskz_loadu_ps(rows, largest), rows);
  _mm512_mask_storeu_ps(factors, rows, factor);
  _mm512_mask_storeu_ps(sums, rows, factor * _mm512_maskz_loadu_ps(rows, sums));
  for (int64_t i = 0; i < of.height; ++i) {
    float* const row = scores + i * of.row;
    const __m512 top = all(largest[i]);
    __m512 sum = all(0);
    for_keys(of, i, [&](int64_t key, __mmask16 seen) __attribute__((always_inline)) {
      const __m512 p = power_of_two(_mm512_fmsub_ps(scale, _mm512_loadu_ps(row + key), top), seen);
      _mm512_storeu_ps(row + key, p);
      sum += p;
    });
    sums[i] += _mm512_reduce_add_ps(sum);
  }
}

void softmax_backward(const Scores& of, float* p, float* diff, const float* largest, const float* inverse, const float* deltas) {
  const __m512 scale = all(of.scale), to_log2 = all(of.scale * log2_e);
  for (int64_t i = 0; i < of.height; ++i, p += of.row, diff += of.row) {
    const __m512 top = all(largest[i]), factor = all(inverse[i]), delta = all(deltas[i]);
    for_keys(of, i, [&](int64_t key, __mmask16 seen) __attribute__((always_inline)) {
      const __m512 probability = factor * power_of_two(_mm512_fmsub_ps(to_log2, _mm512_loadu_ps(p + key), top), seen);
      _mm512_storeu_ps(p + key, probability);
      _mm512_storeu_ps(diff + key, _mm512_maskz_mul_ps(seen, probability, scale * (_mm512_loadu_ps(diff + key) - delta)));
    });
  }
}

void scale_rows(float* c, int64_t row_c, int64_t height, int64_t width, const float* factors) {
  for (int64_t i = 0; i < height; ++i, c += row_c) {
    for_lanes(width, [&](int64_t k, __mmask16 there) {
      _mm512_mask_storeu_ps(c + k, there, all(factors[i]) * _mm512_maskz_loadu_ps(there, c + k));
    });
  }
}

void dot_rows(const float* a, const float* b, int64_t row, int64_t height, int64_t width, float* dots) {
  for (int64_t i = 0; i < height; ++i, a += row, b += row) {
    __m512 sum = all(0);
    for_lanes(width, [&](int64_t k, __mmask16 there) {
      sum = fma(_mm512_maskz_loadu_ps(there, a + k), _mm512_maskz_loadu_ps(there, b + k), sum);
    });
    dots[i] = _mm512_reduce_add_ps(sum);
  }
}

}  // namespace ppengine::ops::cpu::avx512
