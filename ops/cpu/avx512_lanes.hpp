// What the files that are compiled for AVX-512 share. All of it is private to each of them: nothing that others could be linked to.
// A __m512 adds and multiplies like a number, element by element.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define PPENGINE_INLINE [[maybe_unused]] inline __attribute__((always_inline))

namespace ppengine::ops::cpu::avx512 {
namespace {

constexpr int64_t lanes = 16;

PPENGINE_INLINE __mmask16 first(int64_t count) {
  return static_cast<__mmask16>(count >= lanes ? 0xffff : count <= 0 ? 0 : (1 << count) - 1);
}

// body(i, mask) for every 16 of [0, count), and for the rest.
template <class Body>
PPENGINE_INLINE void for_lanes(int64_t count, const Body& body) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, static_cast<__mmask16>(0xffff));
  if (i < count) body(i, first(count - i));
}

// body(Constant<height>()) for a height of 1 to Most, which is looked at first.
template <int Value>
struct Constant {
  static constexpr int value = Value;
};
template <int Most, class Body>
PPENGINE_INLINE void with_height(int64_t height, const Body& body) {
  if constexpr (Most > 1) {
    if (height < Most) return with_height<Most - 1>(height, body);
  }
  body(Constant<Most>());
}

PPENGINE_INLINE __m512 all(float value) { return _mm512_set1_ps(value); }
PPENGINE_INLINE __m512 fma(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
PPENGINE_INLINE __m512 fma(__m512 a, __m512 b, float c) { return _mm512_fmadd_ps(a, b, all(c)); }
PPENGINE_INLINE __mmask16 at_least(__m512 x, float limit) { return _mm512_cmp_ps_mask(x, all(limit), _CMP_NLT_UQ); }  // and NaN
// NaN stays NaN.
PPENGINE_INLINE __m512 at_most(__m512 x, float limit) { return _mm512_min_ps(all(limit), x); }
PPENGINE_INLINE __m512 raised(__m512 x, float limit) { return _mm512_max_ps(all(limit), x); }

// exp for -87 <= x <= 89: the polynomial of fast_exp in ops/kernels/math.hpp (Cephes' expf).
PPENGINE_INLINE __m512 exponential_within(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(x * all(1.44269504088896341f), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m512 f = fma(n, all(2.12194440e-4f), fma(n, all(-0.693359375f), x));
  __m512 p = fma(all(1.9875691500e-4f), f, 1.3981999507e-3f);
  p = fma(p, f, 8.3334519073e-3f);
  p = fma(p, f, 4.1665795894e-2f);
  p = fma(p, f, 1.6666665459e-1f);
  p = fma(p, f, 5.0000001201e-1f);
  return _mm512_scalef_ps(fma(p, f * f, f) + all(1.0f), n);
}

// 0 below -87, infinity above about 88.7, NaN for NaN.
PPENGINE_INLINE __m512 exponential(__m512 x) {
  return _mm512_maskz_mov_ps(at_least(x, -87.0f), exponential_within(raised(at_most(x, 89.0f), -87.0f)));
}

// 1 / x for 1 <= x < 2^126, to two units in the last place: a division takes four times as long.
PPENGINE_INLINE __m512 reciprocal(__m512 x) {
  const __m512 r = _mm512_rcp14_ps(x);
  return fma(r, _mm512_fnmadd_ps(x, r, all(1.0f)), r);
}

// 1 / (1 + exp(-x)); 0 below -87.
PPENGINE_INLINE __m512 sigmoid(__m512 x) {
  const __m512 minus_x = _mm512_xor_ps(x, all(-0.0f));
  return _mm512_maskz_mov_ps(at_least(x, -87.0f), reciprocal(all(1.0f) + exponential_within(raised(at_most(minus_x, 87.0f), -87.0f))));
}

}  // namespace
}  // namespace ppengine::ops::cpu::avx512
