// Compiled for AVX-512 whatever the build's target is: nothing that other files could be linked to may be defined here, so no standard
// library but for types.
#include <ppengine/ops/cpu/avx512.hpp>

#include <ppengine/ops/cpu/avx512_lanes.hpp>

namespace ppengine::ops::cpu::avx512 {
namespace {

constexpr int64_t unroll = 8;  // steps of a tile between fetches

void transpose(__m512 (&rows)[16]) {
  __m512 t[16];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) {
    t[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 16; i += 4) {
    const __m512d a = _mm512_castps_pd(t[i]), b = _mm512_castps_pd(t[i + 1]), c = _mm512_castps_pd(t[i + 2]),
                  d = _mm512_castps_pd(t[i + 3]);
    rows[i] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    rows[i + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    rows[i + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, d));
    rows[i + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, d));
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 a = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0x88), b = _mm512_shuffle_f32x4(rows[i], rows[i + 4], 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0x88), d = _mm512_shuffle_f32x4(rows[i + 8], rows[i + 12], 0xdd);
    t[i] = _mm512_shuffle_f32x4(a, c, 0x88);
    t[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
    t[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
    t[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
  }
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) rows[i] = t[i];
}

// 16 columns of a panel from 16 rows of b.
void pack_transposed(const float* b, int64_t row_b, int64_t width, int64_t depth, float* panel) {
  for (int64_t k = 0; k < depth; k += lanes) {
    const __mmask16 there = first(depth - k);
    __m512 rows[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) rows[i] = i < width ? _mm512_maskz_loadu_ps(there, b + i * row_b + k) : _mm512_setzero_ps();
    transpose(rows);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i)
      if (k + i < depth) _mm512_store_ps(panel + (k + i) * panel_width, rows[i]);
  }
}

template <int Height, bool Strip>
void multiply_rows(const Tile& tile) {
  __m512 sums[Height][2];
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i) sums[i][0] = sums[i][1] = _mm512_setzero_ps();

  // Every third row has a pointer of its own: the two behind it are then reached by what an address can add up itself.
  constexpr int pointers = Strip ? 1 : (Height + 2) / 3;
  constexpr int64_t step_a = Strip ? tile_height : 1;
  const int64_t row_a = Strip ? 1 : tile.row_a;
  const float* a[pointers];
#pragma GCC unroll 4
  for (int i = 0; i < pointers; ++i) a[i] = tile.a + i * 3 * row_a;
  const float* panel = tile.panel;
  const auto add_step = [&](int64_t u) __attribute__((always_inline)) {
    const float* const line = panel + u * panel_width;
    const __m512 left = _mm512_load_ps(line), right = _mm512_load_ps(line + lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      const __m512 value = _mm512_set1_ps(Strip ? a[0][u * step_a + i] : a[i / 3][i % 3 * row_a + u]);
      sums[i][0] = _mm512_fmadd_ps(value, left, sums[i][0]);
      sums[i][1] = _mm512_fmadd_ps(value, right, sums[i][1]);
    }
  };
  const auto advance = [&](int64_t steps) __attribute__((always_inline)) {
#pragma GCC unroll 4
    for (int i = 0; i < pointers; ++i) {
      a[i] += steps * step_a;
      asm("" : "+r"(a[i]));  // they stay pointers: the compiler would compute each row's address anew
    }
    panel += steps * panel_width;
  };
  // A few lines at a time: all at once they would hold up the loads of this tile. The last float of each 16 is asked for, since rows
  // need not begin with a cache line, and the line in which they do begin is the end of what was there before.
  const float* next_c = tile.next_c;
  const float* next_b = tile.next_b;
  int64_t k = 0;
  for (int64_t fetch = 0; k + unroll <= tile.depth; k += unroll, ++fetch) {
    _mm_prefetch(reinterpret_cast<const char*>(next_b + lanes - 1), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(next_b + 2 * lanes - 1), _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(next_c + lanes - 1), _MM_HINT_ET0);
    _mm_prefetch(reinterpret_cast<const char*>(next_c + 2 * lanes - 1), _MM_HINT_ET0);
    next_b += fetch + 1 < tile.rows_b ? tile.row_b : 0;
    next_c += fetch + 1 < Height ? tile.row_c : 0;
#pragma GCC unroll 8
    for (int64_t u = 0; u < unroll; ++u) add_step(u);
    advance(unroll);
  }
  for (; k < tile.depth; ++k, advance(1)) add_step(0);

  const __mmask16 left = first(tile.width), right = first(tile.width - lanes);
  if (tile.bias) {
    const __m512 bias[2] = {_mm512_maskz_loadu_ps(left, tile.bias), _mm512_maskz_loadu_ps(right, tile.bias + lanes)};
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      sums[i][0] = _mm512_add_ps(sums[i][0], bias[0]);
      sums[i][1] = _mm512_add_ps(sums[i][1], bias[1]);
    }
  }
  if (tile.add) {
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      const float* const add = tile.add + i * tile.row_c;
      sums[i][0] = _mm512_add_ps(sums[i][0], _mm512_maskz_loadu_ps(left, add));
      sums[i][1] = _mm512_add_ps(sums[i][1], _mm512_maskz_loadu_ps(right, add + lanes));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i) {
    float* const c = tile.c + i * tile.row_c;
    _mm512_mask_storeu_ps(c, left, sums[i][0]);
    _mm512_mask_storeu_ps(c + lanes, right, sums[i][1]);
  }
}

}  // namespace

void pack_panel(const float* b, int64_t row_b, bool transposed, int64_t width, int64_t depth, float* panel) {
  if (transposed) {
    pack_transposed(b, row_b, width, depth, panel);
    pack_transposed(b + lanes * row_b, row_b, width - lanes, depth, panel + lanes);
    return;
  }
  const __mmask16 left = first(width), right = first(width - lanes);
  for (int64_t k = 0; k < depth; ++k, b += row_b, panel += panel_width) {
    _mm512_store_ps(panel, _mm512_maskz_loadu_ps(left, b));
    _mm512_store_ps(panel + lanes, _mm512_maskz_loadu_ps(right, b + lanes));
  }
}

void pack_strip(const float* a, int64_t row_a, int64_t height, int64_t depth, float* strip) {
  const __mmask16 there = first(height);
  for (int64_t k = 0; k < depth; ++k, a += row_a, strip += tile_height) _mm512_storeu_ps(strip, _mm512_maskz_loadu_ps(there, a));
}

void multiply(const Tile& tile) {
  with_height<tile_height>(tile.height, [&](auto height) {
    tile.row_a == 0 ? multiply_rows<height.value, true>(tile) : multiply_rows<height.value, false>(tile);
  });
}

void sum_rows(const float* a, int64_t row_a, int64_t rows, int64_t width, float* sums, bool accumulate) {
  constexpr int count = sum_width / lanes;
  __mmask16 there[count];
  __m512 total[count];
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) {
    there[i] = first(width - i * lanes);
    total[i] = accumulate ? _mm512_maskz_loadu_ps(there[i], sums + i * lanes) : _mm512_setzero_ps();
  }
  for (int64_t r = 0; r < rows; ++r, a += row_a) {
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) total[i] = _mm512_add_ps(total[i], _mm512_maskz_loadu_ps(there[i], a + i * lanes));
  }
#pragma GCC unroll 8
  for (int i = 0; i < count; ++i) _mm512_mask_storeu_ps(sums + i * lanes, there[i], total[i]);
}

}  // namespace ppengine::ops::cpu::avx512
