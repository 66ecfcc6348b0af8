// Sums over the rows of a matrix, one per column, in a fixed order.
#pragma once

#include "values.hpp"

struct Pair {
  float a, b;
};

syclexp::work_group_static<float[2][32][33]> column_sums;

// first[i] (+)= Σ term(row, i).a and, with two of them, second[i] (+)= Σ term(row, i).b (null: not wanted). Launched with a local
// size of (rows side by side, columns side by side), at most 32 x 32, and enough groups in x for all columns.
template <int sums, class Term>
inline void sum_columns(long rows, long width, float* first, float* second, bool accumulate, Term term) {
  const auto item = item_2d();
  const long y = item.get_local_id(0), size_y = item.get_local_range(0);
  const long x = item.get_local_id(1);
  const long i = item.get_global_id(1);
  Pair even{0, 0}, odd{0, 0};
  if (i < width) {
    long row = y;
    for (; row + size_y < rows; row += 2 * size_y) {
      const Pair p = term(row, i), q = term(row + size_y, i);
      even.a += p.a, odd.a += q.a;
      if constexpr (sums == 2) even.b += p.b, odd.b += q.b;
    }
    if (row < rows) {
      const Pair p = term(row, i);
      even.a += p.a;
      if constexpr (sums == 2) even.b += p.b;
    }
  }
  Pair total{even.a + odd.a, even.b + odd.b};
  if (size_y > 1) {
    float (&shared)[2][32][33] = column_sums;
    shared[0][y][x] = total.a;
    if constexpr (sums == 2) shared[1][y][x] = total.b;
    sycl::group_barrier(item.get_group());
    if (y > 0) return;
    for (long other = 1; other < size_y; ++other) {
      total.a += shared[0][other][x];
      if constexpr (sums == 2) total.b += shared[1][other][x];
    }
  }
  if (i >= width) return;
  first[i] = accumulate ? first[i] + total.a : total.a;
  if constexpr (sums == 2) {
    if (second) second[i] = accumulate ? second[i] + total.b : total.b;
  }
}
