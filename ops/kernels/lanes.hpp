// Vectors of 16 lanes for kernels in which a work-item is a thread of a CPU.
#pragma once

#include "few_rows_shared.hpp"

constexpr int few_lanes = 16;
typedef float Lanes __attribute__((ext_vector_type(16)));
typedef float Lanes8 __attribute__((ext_vector_type(8)));
typedef float Lanes4 __attribute__((ext_vector_type(4)));
typedef unsigned UnsignedLanes __attribute__((ext_vector_type(16)));
typedef float LanesInMemory __attribute__((ext_vector_type(16), aligned(4)));
typedef unsigned short Bf16InMemory __attribute__((ext_vector_type(16), aligned(2)));
typedef int IntLanes __attribute__((ext_vector_type(16)));
typedef unsigned char BytesInMemory __attribute__((ext_vector_type(16), aligned(1)));
typedef signed char Int8InMemory __attribute__((ext_vector_type(16), aligned(1)));

inline Lanes load_lanes(const float* p) { return *reinterpret_cast<const LanesInMemory*>(p); }
inline Lanes load_lanes(const bf16_bits* p) {
  return __builtin_bit_cast(Lanes, __builtin_convertvector(*reinterpret_cast<const Bf16InMemory*>(p), UnsignedLanes) << 16);
}
inline Lanes load_lanes(const int8_bits* p) { return __builtin_convertvector(*reinterpret_cast<const Int8InMemory*>(p), Lanes); }
// Half of a block of 4-bit weights: the first 16 inputs, or the last.
inline Lanes load_half_block(const int4_bits* p, bool last, unsigned word) {
  const IntLanes two = __builtin_convertvector(*reinterpret_cast<const BytesInMemory*>(p), IntLanes);
  return __builtin_convertvector(last ? two >> 4 : two & 15, Lanes) * int4_step(word) + int4_least(word);
}
inline float load_one(const float* p) { return *p; }
inline Lanes load_lanes(const int4_bits*) { return 0; }  // read by blocks
inline float load_one(const int4_bits*) { return 0; }
inline float load_one(const bf16_bits* p) { return load(p, 0); }
inline float load_one(const int8_bits* p) { return static_cast<float>(*p); }
inline float sum_of(Lanes v) {
  const Lanes8 a = v.lo + v.hi;
  const Lanes4 b = a.lo + a.hi;
  return (b.x + b.z) + (b.y + b.w);
}

template <class Term>
inline float sum_over(long width, const Term& term) {
  Lanes sum = 0;
  long i = 0;
  for (; i + few_lanes <= width; i += few_lanes) sum += term(i, Lanes());
  float rest = 0;
  for (; i < width; ++i) rest += term(i, float());
  return sum_of(sum) + rest;
}
struct Values {  // of a row, as many as the second argument has
  const float* p;
  Lanes operator()(long i, Lanes) const { return load_lanes(p + i); }
  float operator()(long i, float) const { return p[i]; }
};
