// Arithmetic of f32. What devices only approximate (.approx) is computed in double and rounded: within their error, not their bits.
#include <cfenv>
#include <cmath>

#include "arithmetic.hpp"
#include "bits.hpp"

namespace ppengine::ptx {
namespace {

using std::uint64_t;

float f(std::uint64_t bits) { return from_bits<float>(bits); }
std::uint64_t bits(float value) { return to_bits(value); }
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

template <double (*function)(double)>
std::uint64_t approximate(std::uint64_t a, std::uint64_t, std::uint64_t) {
  return bits(static_cast<float>(function(f(a))));
}
template <double (*function)(double)>
std::uint64_t approximate_flushed(std::uint64_t a, std::uint64_t, std::uint64_t) {
  return bits(flushed(static_cast<float>(function(flushed(f(a))))));
}

double reciprocal(double x) { return 1.0 / x; }
double reciprocal_root(double x) { return 1.0 / std::sqrt(x); }
double root(double x) { return std::sqrt(x); }
double power_of_two(double x) { return std::exp2(x); }

// To nearest, ties to even; any NaN becomes one.
std::uint64_t rounded_to_bf16(std::uint64_t a) {
  if (std::isnan(f(a))) return 0x7fff;
  return (a + 0x7fff + ((a >> 16) & 1)) >> 16;
}

// Towards minus infinity. volatile: the compiler must not compute it before the rounding is set.
std::uint64_t fma_down(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  const int before = std::fegetround();
  std::fesetround(FE_DOWNWARD);
  const volatile float x = f(a), y = f(b), z = f(c);
  const volatile float result = std::fma(x, y, z);
  std::fesetround(before);
  return bits(result);
}

}  // namespace

void add_floating(Arithmetic& table) {
  table["add.f32"] = table["add.rn.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return bits(f(a) + f(b)); };
  table["sub.f32"] = table["sub.rn.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return bits(f(a) - f(b)); };
  table["mul.f32"] = table["mul.rn.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return bits(f(a) * f(b)); };
  table["div.rn.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return bits(f(a) / f(b)); };
  table["rcp.rn.f32"] = [](std::uint64_t a, std::uint64_t, std::uint64_t) { return bits(1.0f / f(a)); };
  table["sqrt.rn.f32"] = [](std::uint64_t a, std::uint64_t, std::uint64_t) { return bits(std::sqrt(f(a))); };
  table["fma.rn.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t c) { return bits(std::fma(f(a), f(b), f(c))); };
  table["fma.rm.f32"] = fma_down;
  table["min.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return bits(std::fmin(f(a), f(b))); };
  table["max.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return bits(std::fmax(f(a), f(b))); };
  table["neg.f32"] = [](std::uint64_t a, std::uint64_t, std::uint64_t) { return bits(-f(a)); };
  table["abs.f32"] = [](std::uint64_t a, std::uint64_t, std::uint64_t) { return bits(std::fabs(f(a))); };
  table["copysign.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    return bits(std::copysign(f(b), f(a)));
  };  // a has the sign
  table["rcp.approx.ftz.f32"] = approximate_flushed<reciprocal>;
  table["rsqrt.approx.f32"] = approximate<reciprocal_root>;
  table["sqrt.approx.f32"] = approximate<root>;
  table["ex2.approx.ftz.f32"] = approximate_flushed<power_of_two>;
  table["cvt.rn.bf16x2.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    return rounded_to_bf16(a) << 16 | rounded_to_bf16(b);
  };  // a above
  table["selp.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t c) { return (c & 1) != 0 ? a : b; };
}

}  // namespace ppengine::ptx
