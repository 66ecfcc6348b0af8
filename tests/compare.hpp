// Comparisons for tests that a NaN, an infinity or a wrong number of values cannot pass: every measure of a difference is infinite then,
// so that "< tolerance" fails, whatever the tolerance.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace ppengine::test {

inline constexpr double not_comparable = std::numeric_limits<double>::infinity();

// The larger of both; not comparable where either is not a number. In place of std::max, which drops a NaN on one side.
inline double worse(double a, double b) { return std::isnan(a) || std::isnan(b) ? not_comparable : std::max(a, b); }

// |got - expected|; not comparable unless both are finite.
inline double distance(double got, double expected) {
  return std::isfinite(got) && std::isfinite(expected) ? std::abs(got - expected) : not_comparable;
}

// |got - expected| as a share of |expected|, which must not be zero.
inline double relative(double got, double expected) {
  const double share = distance(got, expected) / std::abs(expected);
  return std::isnan(share) ? not_comparable : share;
}

// The largest distance of all values, and where it is.
struct Largest {
  double distance = 0, magnitude = 0;  // magnitude: of the largest expected value
  std::size_t where = 0;
};
template <class Got, class Expected>
Largest largest_distance(const Got& got, const Expected& expected, std::size_t begin = 0) {
  Largest largest;
  if (got.size() != expected.size()) return {not_comparable, 0, std::min<std::size_t>(got.size(), expected.size())};
  for (std::size_t i = begin; i < got.size(); ++i) {
    largest.magnitude = worse(largest.magnitude, distance(double(expected[i]), 0));
    const double one = distance(double(got[i]), double(expected[i]));
    if (one > largest.distance) largest.distance = one, largest.where = i;
  }
  return largest;
}

// The largest distance as a share of the largest expected value, or of `least` where all are smaller. Nothing compared is no difference.
template <class Got, class Expected>
double largest_share(const Got& got, const Expected& expected, double least = 1e-6, std::size_t begin = 0) {
  const Largest largest = largest_distance(got, expected, begin);
  const double share = largest.distance / std::max(largest.magnitude, least);
  return std::isnan(share) ? not_comparable : share;
}

}  // namespace ppengine::test
