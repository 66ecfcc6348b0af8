// What the CPU's and the GPU's kernels for linear layers over few rows share.
#pragma once

#include <utility>

#include "math.hpp"
#include "values.hpp"

using int8_bits = signed char;

// body(integral constant) for 0 .. N-1, unrolled before anything is optimized: arrays indexed so become registers.
template <int... K, class Body>
inline __attribute__((always_inline)) void unroll_list(std::integer_sequence<int, K...>, const Body& body) {
  (body(std::integral_constant<int, K>()), ...);
}
template <int N, class Body>
inline __attribute__((always_inline)) void unroll(const Body& body) {
  unroll_list(std::make_integer_sequence<int, N>(), body);
}

inline float activate(int kind, float x) {  // as ops::ActivationKind, from 1
  switch (kind) {
    case 1:
      return x / (1.0f + fast_exp(-1.59576912160573071176f * x * (1.0f + 0.044715f * x * x)));
    case 2:
      return 0.5f * x * (1.0f + fast_erf(x * 0.70710678118654752440f));
    case 3:
      return x / (1.0f + fast_exp(-x));
    case 4:
      return sycl::fmax(x, 0.0f);
    default:
      return x;
  }
}
