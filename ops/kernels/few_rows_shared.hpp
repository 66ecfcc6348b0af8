// What the CPU's and the GPU's kernels for linear layers over few rows share.
#pragma once

#include <utility>

#include "math.hpp"
#include "values.hpp"

using int8_bits = signed char;
// Weights of 4 bits, 32 inputs in 16 bytes: the lower halves are the first 16 inputs, the upper ones the others. A word per group of inputs
// holds what one step is worth and what zero is worth, both as bf16.
struct int4_bits {
  unsigned char two;
};
constexpr long int4_block = 32, int4_block_bytes = 16;
inline long int4_row_bytes(long in) { return (in + int4_block - 1) / int4_block * int4_block_bytes; }
inline float int4_step(unsigned word) { return __builtin_bit_cast(float, word & 0xffff0000u); }
inline float int4_least(unsigned word) { return __builtin_bit_cast(float, word << 16); }
inline float int4_value(const int4_bits* row, const unsigned* words, long i, long group) {
  const unsigned two = row[i / int4_block * int4_block_bytes + i % int4_block_bytes].two, word = words[i / group];
  return static_cast<float>(i % int4_block < int4_block_bytes ? two & 15u : two >> 4) * int4_step(word) + int4_least(word);
}

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
