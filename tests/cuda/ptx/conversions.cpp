// cvt: "cvt.to.from" between integers cuts off or extends by the sign of the source; ".rn" rounds to float, ".rzi" to integer towards zero,
// where what does not fit becomes the nearest that does and NaN 0.
#include <algorithm>
#include <cmath>
#include <limits>

#include "arithmetic.hpp"
#include "bits.hpp"

namespace ppengine::ptx {
namespace {

using std::uint64_t;

template <class To, class From>
std::uint64_t between_integers(std::uint64_t a, std::uint64_t, std::uint64_t) {
  return to_bits<To>(static_cast<To>(from_bits<From>(a)));
}

template <class From>
std::uint64_t to_float(std::uint64_t a, std::uint64_t, std::uint64_t) {
  return to_bits(static_cast<float>(from_bits<From>(a)));
}

template <class To>
std::uint64_t to_integer(std::uint64_t a, std::uint64_t, std::uint64_t) {
  const double x = std::trunc(static_cast<double>(from_bits<float>(a)));
  if (std::isnan(x)) return 0;
  // The largest integer may have no double of its own; the power of two above it has.
  const double above = std::ldexp(1.0, std::numeric_limits<To>::digits);
  if (x >= above) return to_bits(std::numeric_limits<To>::max());
  if (x < static_cast<double>(std::numeric_limits<To>::min())) return to_bits(std::numeric_limits<To>::min());
  return to_bits(static_cast<To>(x));
}

template <class From>
void add_from(Arithmetic& table, const std::string& from) {
  table["cvt.s16." + from] = between_integers<std::int16_t, From>;
  table["cvt.u16." + from] = between_integers<std::uint16_t, From>;
  table["cvt.s32." + from] = between_integers<std::int32_t, From>;
  table["cvt.u32." + from] = between_integers<std::uint32_t, From>;
  table["cvt.s64." + from] = between_integers<std::int64_t, From>;
  table["cvt.u64." + from] = between_integers<std::uint64_t, From>;
  table["cvt.rn.f32." + from] = to_float<From>;
}

}  // namespace

void add_conversions(Arithmetic& table) {
  add_from<std::int8_t>(table, "s8");
  add_from<std::uint8_t>(table, "u8");
  add_from<std::int16_t>(table, "s16");
  add_from<std::uint16_t>(table, "u16");
  add_from<std::int32_t>(table, "s32");
  add_from<std::uint32_t>(table, "u32");
  add_from<std::int64_t>(table, "s64");
  add_from<std::uint64_t>(table, "u64");
  table["cvt.rzi.s32.f32"] = to_integer<std::int32_t>;
  table["cvt.rzi.u32.f32"] = to_integer<std::uint32_t>;
  table["cvt.rzi.s64.f32"] = to_integer<std::int64_t>;
  table["cvt.rzi.u64.f32"] = to_integer<std::uint64_t>;
  table["cvt.sat.f32.f32"] = [](std::uint64_t a, std::uint64_t, std::uint64_t) {
    const float x = from_bits<float>(a);
    return to_bits(std::isnan(x) ? 0.0f : std::clamp(x, 0.0f, 1.0f));
  };
}

}  // namespace ppengine::ptx
