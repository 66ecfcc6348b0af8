// What the vector loops share, once per target: a vector, its parts in memory, exponentials. Included by each loops_*.cpp for each target
// (hwy/foreach_target.h), so it has no include guard of the usual kind.
#if defined(PPENGINE_CPU_LANES) == defined(HWY_TARGET_TOGGLE)
#ifdef PPENGINE_CPU_LANES
#undef PPENGINE_CPU_LANES
#else
#define PPENGINE_CPU_LANES
#endif

#include <hwy/highway.h>

#include <cstdint>

#undef PPENGINE_AVX512
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
#define PPENGINE_AVX512 1
#else
#define PPENGINE_AVX512 0
#endif
#ifndef PPENGINE_INLINE
#define PPENGINE_INLINE [[maybe_unused]] inline __attribute__((always_inline))
#define PPENGINE_INLINED __attribute__((always_inline))
#endif

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR
namespace hn = hwy::HWY_NAMESPACE;

using F = hn::ScalableTag<float>;
using I = hn::RebindToSigned<F>;
using V = hn::Vec<F>;
constexpr F f32;
constexpr I i32;
constexpr std::int64_t lanes = HWY_LANES(float);
// Two registers of columns; the rows' sums take all registers but four, which hold the operands.
constexpr std::int64_t panel_width = 2 * lanes, tile_height = (PPENGINE_AVX512 || HWY_ARCH_ARM_A64) ? 12 : 6;

PPENGINE_INLINE V all(float value) { return hn::Set(f32, value); }
PPENGINE_INLINE V zero() { return hn::Zero(f32); }
PPENGINE_INLINE V load(const float* p) { return hn::LoadU(f32, p); }
PPENGINE_INLINE void store(float* p, V v) { hn::StoreU(v, f32, p); }

// How much of a register is meant: all of it, or its first lanes. Reads outside give zeros and touch no memory.
struct Whole {
  PPENGINE_INLINE static V load(const float* p) { return hn::LoadU(f32, p); }
  PPENGINE_INLINE static void store(float* p, V v) { hn::StoreU(v, f32, p); }
  PPENGINE_INLINE static V keep(V v) { return v; }       // zeros elsewhere
  PPENGINE_INLINE static V choose(V v, V) { return v; }  // the other elsewhere
};
struct First {
  std::int64_t count;  // may be negative or more than there are
  PPENGINE_INLINE explicit First(std::int64_t of) : count(of < 0 ? 0 : of > lanes ? lanes : of) {}
  PPENGINE_INLINE auto mask() const { return hn::FirstN(f32, static_cast<std::size_t>(count)); }
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  PPENGINE_INLINE V load(const float* p) const { return hn::MaskedLoad(mask(), f32, p); }
  PPENGINE_INLINE void store(float* p, V v) const { hn::BlendedStore(v, mask(), f32, p); }
#else  // Highway's own would touch what lies behind
  PPENGINE_INLINE V load(const float* p) const {
    HWY_ALIGN float values[lanes] = {};
    for (std::int64_t i = 0; i < count; ++i) values[i] = p[i];
    return hn::Load(f32, values);
  }
  PPENGINE_INLINE void store(float* p, V v) const {
    HWY_ALIGN float values[lanes];
    hn::Store(v, f32, values);
    for (std::int64_t i = 0; i < count; ++i) p[i] = values[i];
  }
#endif
  PPENGINE_INLINE V keep(V v) const { return hn::IfThenElseZero(mask(), v); }
  PPENGINE_INLINE V choose(V v, V other) const { return hn::IfThenElse(mask(), v, other); }
};

// body(i, Whole) for every register of [0, count), and body(i, First) for the rest.
template <class Body>
PPENGINE_INLINE void for_lanes(std::int64_t count, const Body& body) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) body(i, Whole());
  if (i < count) body(i, First(count - i));
}

// body(Constant<height>()) for a height of 1 to Most, which is looked at first.
template <int Value>
struct Constant {
  static constexpr int value = Value;
};
template <int Most, class Body>
PPENGINE_INLINE void with_height(std::int64_t height, const Body& body) {
  if constexpr (Most > 1) {
    if (height < Most) return with_height<Most - 1>(height, body);
  }
  body(Constant<Most>());
}

PPENGINE_INLINE V fma(V a, V b, V c) { return hn::MulAdd(a, b, c); }
PPENGINE_INLINE V fma(V a, V b, float c) { return hn::MulAdd(a, b, all(c)); }
// NaN stays NaN.
PPENGINE_INLINE V at_most(V x, float limit) { return hn::Min(all(limit), x); }
PPENGINE_INLINE V raised(V x, float limit) { return hn::Max(all(limit), x); }
PPENGINE_INLINE V zero_below(V x, float limit, V value) { return hn::IfThenZeroElse(hn::Lt(x, all(limit)), value); }  // not for NaN
PPENGINE_INLINE float sum_of(V v) { return hn::GetLane(hn::SumOfLanes(f32, v)); }

// The sum of term(i, Whole or First) over [0, count), in four parts: an addition takes four cycles.
template <class Term>
PPENGINE_INLINE float sum_over(std::int64_t count, const Term& term) {
  V parts[4] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) parts[p] = hn::Add(parts[p], term(i + p * lanes, Whole()));
  }
  for (; i + lanes <= count; i += lanes) parts[0] = hn::Add(parts[0], term(i, Whole()));
  if (i < count) parts[1] = hn::Add(parts[1], term(i, First(count - i)));
  return sum_of(hn::Add(hn::Add(parts[0], parts[1]), hn::Add(parts[2], parts[3])));
}

// What is added to 1.5 · 2^23 is rounded to a whole number, which its lowest bits hold; with 127 more, they hold the exponent of a float.
constexpr float rounding = 12582912.0f + 127.0f;

// p · 2^n for n = rounded - rounding from -126 to 127; NaN where p is.
PPENGINE_INLINE V scaled_by_power(V p, V rounded, V n) {
#if PPENGINE_AVX512
  (void)rounded;
  return V{_mm512_scalef_ps(p.raw, n.raw)};
#else
  (void)n;
  return hn::Mul(p, hn::BitCast(f32, hn::ShiftLeft<23>(hn::BitCast(i32, rounded))));
#endif
}

// exp for -87 <= x <= 88: the polynomial of fast_exp in ops/kernels/math.hpp (Cephes' expf).
PPENGINE_INLINE V exponential_within(V x) {
  const V rounded = fma(x, all(1.44269504088896341f), rounding), n = hn::Sub(rounded, all(rounding));
  const V f = fma(n, all(2.12194440e-4f), fma(n, all(-0.693359375f), x));
  V p = fma(all(1.9875691500e-4f), f, 1.3981999507e-3f);
  p = fma(p, f, 8.3334519073e-3f);
  p = fma(p, f, 4.1665795894e-2f);
  p = fma(p, f, 1.6666665459e-1f);
  p = fma(p, f, 5.0000001201e-1f);
  return scaled_by_power(hn::Add(fma(p, hn::Mul(f, f), f), all(1.0f)), rounded, n);
}

// For x <= 88: 0 below -87, NaN for NaN.
PPENGINE_INLINE V exponential(V x) { return zero_below(x, -87.0f, exponential_within(raised(x, -87.0f))); }

// 1 / x for 1 <= x < 2^126, to two units in the last place. With AVX-512 a division takes four times as long as this; the others begin
// with fewer bits, and a second step would take as long as a division.
PPENGINE_INLINE V reciprocal(V x) {
#if PPENGINE_AVX512
  const V r = hn::ApproximateReciprocal(x);
  return fma(r, hn::NegMulAdd(x, r, all(1.0f)), r);
#else
  return hn::Div(all(1.0f), x);
#endif
}

// 1 / (1 + exp(-x)); 0 below -87, NaN for NaN.
PPENGINE_INLINE V sigmoid(V x) {
  const V power = exponential_within(raised(at_most(hn::Neg(x), 87.0f), -87.0f));
  return zero_below(x, -87.0f, reciprocal(hn::Add(all(1.0f), power)));
}
#endif  // HWY_SCALAR
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
