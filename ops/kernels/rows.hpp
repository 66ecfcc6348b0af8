// Reductions of one row by one work-group. Every work-item gets the result. The order is fixed: same bits when run again.
#pragma once

#include "values.hpp"

inline float group_sum(float value) { return sycl::reduce_over_group(item_1d().get_group(), value, sycl::plus<float>()); }
inline float group_max(float value) { return sycl::reduce_over_group(item_1d().get_group(), value, sycl::maximum<float>()); }

// Sum of term(i) over [0, width). Four accumulators hide the latency of additions.
template <class Term>
inline float row_sum(long width, Term term) {
  const auto item = item_1d();
  const long lane = item.get_local_id(0);
  const long size = item.get_local_range(0);
  float a = 0, b = 0, c = 0, d = 0;
  long i = 0;
  for (; i + 4 * size <= width; i += 4 * size) {
    a += term(i + lane);
    b += term(i + size + lane);
    c += term(i + 2 * size + lane);
    d += term(i + 3 * size + lane);
  }
  for (; i + size <= width; i += size) a += term(i + lane);
  if (i + lane < width) b += term(i + lane);
  return group_sum((a + b) + (c + d));
}

// The largest term(i) over [0, width).
template <class Term>
inline float row_max(long width, Term term) {
  const auto item = item_1d();
  const long lane = item.get_local_id(0);
  const long size = item.get_local_range(0);
  float a = -__builtin_inff(), b = -__builtin_inff();
  long i = 0;
  for (; i + 2 * size <= width; i += 2 * size) {
    a = sycl::fmax(a, term(i + lane));
    b = sycl::fmax(b, term(i + size + lane));
  }
  for (; i + size <= width; i += size) a = sycl::fmax(a, term(i + lane));
  if (i + lane < width) b = sycl::fmax(b, term(i + lane));
  return group_max(sycl::fmax(a, b));
}
