// exp and erf in f32 arithmetic alone, accurate to two units in the last place: the same bits on every device, and vector code on CPUs,
// where the library's own functions cost two to five times as much.
#pragma once

#include "common.hpp"

// 0 below -87, where results leave the normal range (CPUs take a hundred times as long for those, and masked scores all lie there),
// infinity above about 88.7, NaN for NaN. The polynomial is Cephes' expf.
inline float fast_exp(float x) {
  const bool nothing = x < -87.0f;
  x = nothing ? -87.0f : x > 89.0f ? 89.0f : x;
  const float shifted = sycl::fma(x, 1.44269504088896341f, 12582912.0f);  // a whole number in the low bits: 1.5 · 2^23 rounds
  const float n = shifted - 12582912.0f;
  float f = sycl::fma(n, -0.693359375f, x);
  f = sycl::fma(n, 2.12194440e-4f, f);
  float p = 1.9875691500e-4f;
  p = sycl::fma(p, f, 1.3981999507e-3f);
  p = sycl::fma(p, f, 8.3334519073e-3f);
  p = sycl::fma(p, f, 4.1665795894e-2f);
  p = sycl::fma(p, f, 1.6666665459e-1f);
  p = sycl::fma(p, f, 5.0000001201e-1f);
  p = sycl::fma(p, f * f, f) + 1.0f;
  // 2^n in two factors, so that infinity comes out right.
  const int whole = sycl::bit_cast<int>(shifted) - 0x4b400000, half = whole >> 1;
  const float result = p * sycl::bit_cast<float>((half + 127) << 23) * sycl::bit_cast<float>((whole - half + 127) << 23);
  return nothing ? 0.0f : result;
}

inline float fast_sigmoid(float x) { return 1.0f / (1.0f + fast_exp(-x)); }

// Both halves are minimax polynomials (N. Juffa's erff): x + x·P(x²) near zero, 1 - exp(Q(|x|)) beyond.
inline float fast_erf(float x) {
  const float t = sycl::fmin(sycl::fabs(x), 4.0f), s = t * t;  // erf(4) is 1 in f32
  float far = sycl::fma(-1.72853470e-5f, t, 3.83197126e-4f);
  far = sycl::fma(far, s, sycl::fma(-3.88396438e-3f, t, 2.42546219e-2f));
  far = sycl::fma(far, t, -1.06777877e-1f);
  far = sycl::fma(far, t, -6.34846687e-1f);
  far = sycl::fma(far, t, -1.28717512e-1f);
  far = sycl::fma(far, t, -t);
  far = sycl::copysign(1.0f - fast_exp(far), x);
  float near = -5.96761703e-4f;
  near = sycl::fma(near, s, 4.99119423e-3f);
  near = sycl::fma(near, s, -2.67681349e-2f);
  near = sycl::fma(near, s, 1.12819925e-1f);
  near = sycl::fma(near, s, -3.76125336e-1f);
  near = sycl::fma(near, s, 1.28379166e-1f);
  near = sycl::fma(near, x, x);
  return t > 0.927734375f ? far : near;
}
