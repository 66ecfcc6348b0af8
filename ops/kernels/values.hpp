// Element types in memory and in registers (always f32), and the loops that every flat kernel shares.
#pragma once

#include "common.hpp"

// bf16 as its bits: integer arithmetic vectorises on every device, conversion calls do not.
using bf16_bits = unsigned short;

inline float load(const float* p, long i) { return p[i]; }
inline float load(const bf16_bits* p, long i) { return sycl::bit_cast<float>(static_cast<unsigned>(p[i]) << 16); }
inline float load(const int* p, long i) { return static_cast<float>(p[i]); }

inline bf16_bits to_bf16(float value) {
  const unsigned bits = sycl::bit_cast<unsigned>(value);
  const unsigned rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;  // to nearest, ties to even
  const unsigned quiet = (bits >> 16) | 0x40u;
  return static_cast<bf16_bits>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

inline void store(float* p, long i, float value) { p[i] = value; }
inline void store(bf16_bits* p, long i, float value) { p[i] = to_bf16(value); }
inline void store(int* p, long i, float value) { p[i] = static_cast<int>(value); }

// STAMP(suffix of the kernel's name, element type)
#define FOR_EACH_TYPE(STAMP) STAMP(f32, float) STAMP(bf16, bf16_bits)

// body(i) for the elements [begin, end), dealt to the work-items one after the other: neighbours touch neighbours. The main loop
// has the same trip count for all, so that it becomes plain vector code on CPUs.
template <class Body>
inline void for_range(long begin, long end, Body body) {
  const auto item = item_1d();
  const long lane = item.get_local_id(0);
  const long size = item.get_local_range(0);
  long base = begin;
  for (; base + size <= end; base += size) body(base + lane);
  if (base + lane < end) body(base + lane);
}

// Each work-group has `chunk` consecutive ones of `count` elements.
template <class Body>
inline void for_chunk(long count, long chunk, Body body) {
  const long begin = static_cast<long>(item_1d().get_group(0)) * chunk;
  for_range(begin, lesser(begin + chunk, count), body);
}

// Each work-group has `chunk` consecutive ones of `rows` rows: body(row), the same row for the whole group.
template <class Body>
inline void for_rows(long rows, long chunk, Body body) {
  const long begin = static_cast<long>(item_1d().get_group(0)) * chunk;
  const long end = lesser(begin + chunk, rows);
  for (long row = begin; row < end; ++row) body(row);
}
