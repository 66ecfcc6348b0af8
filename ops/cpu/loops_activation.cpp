// Loops of activations. The formulas are those of ops/kernels/activation.cpp and math.hpp.
#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_activation.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const ActivationTable* find_activation_loops() { return nullptr; }
#else
namespace {

struct Silu {
  PPENGINE_INLINE static V forward(V x) { return hn::Mul(x, sigmoid(x)); }
  PPENGINE_INLINE static V slope(V x) {
    const V s = sigmoid(x);
    return hn::Mul(s, fma(x, hn::Sub(all(1.0f), s), 1.0f));
  }
};

struct Relu {
  PPENGINE_INLINE static V forward(V x) { return raised(x, 0.0f); }
  PPENGINE_INLINE static V slope(V x) { return hn::IfThenElseZero(hn::Gt(x, zero()), all(1.0f)); }
};

struct GeluTanh {
  static constexpr float k2 = 2.0f * 0.79788456080286535588f, c = 0.044715f;
  PPENGINE_INLINE static V forward(V x) { return hn::Mul(x, sigmoid(hn::Mul(hn::Mul(x, all(k2)), fma(hn::Mul(x, all(c)), x, 1.0f)))); }
  PPENGINE_INLINE static V slope(V x) {
    x = raised(at_most(x, 12.0f), -12.0f);  // beyond, the sigmoid is 0 or 1 in f32
    const V square = hn::Mul(x, x);
    const V s = sigmoid(hn::Mul(hn::Mul(x, all(k2)), fma(square, all(c), 1.0f)));
    return fma(hn::Mul(hn::Mul(x, s), hn::Sub(all(1.0f), s)), fma(square, all(3.0f * c * k2), k2), s);
  }
};

PPENGINE_INLINE V erf(V x) {
  const V t = at_most(hn::Abs(x), 4.0f), s = hn::Mul(t, t);  // erf(4) is 1 in f32
  V far = fma(all(-1.72853470e-5f), t, 3.83197126e-4f);
  far = fma(far, s, fma(all(-3.88396438e-3f), t, 2.42546219e-2f));
  far = fma(far, t, -1.06777877e-1f);
  far = fma(far, t, -6.34846687e-1f);
  far = fma(far, t, -1.28717512e-1f);
  far = hn::Sub(all(1.0f), exponential(fma(far, t, hn::Neg(t))));
  far = hn::CopySignToAbs(far, x);
  V near = fma(all(-5.96761703e-4f), s, 4.99119423e-3f);
  near = fma(near, s, -2.67681349e-2f);
  near = fma(near, s, 1.12819925e-1f);
  near = fma(near, s, -3.76125336e-1f);
  near = fma(near, s, 1.28379166e-1f);
  near = fma(near, x, x);
  return hn::IfThenElse(hn::Gt(t, all(0.927734375f)), far, near);
}

struct GeluErf {
  static constexpr float root_half = 0.70710678118654752440f, density = 0.39894228040143267794f;
  PPENGINE_INLINE static V cumulative(V x) { return fma(all(0.5f), erf(hn::Mul(x, all(root_half))), 0.5f); }
  PPENGINE_INLINE static V forward(V x) { return hn::Mul(x, cumulative(x)); }
  PPENGINE_INLINE static V slope(V x) {
    return fma(hn::Mul(x, all(density)), exponential(hn::Mul(hn::Mul(x, x), all(-0.5f))), cumulative(x));
  }
};

template <class Kind>
void forward(const float* src, float* dst, std::int64_t count) {
  for_lanes(count, [&](std::int64_t i, auto some) PPENGINE_INLINED { some.store(dst + i, Kind::forward(some.load(src + i))); });
}
template <class Kind>
void backward(const float* src, const float* diff_dst, float* diff_src, std::int64_t count) {
  for_lanes(count, [&](std::int64_t i, auto some)
                       PPENGINE_INLINED { some.store(diff_src + i, hn::Mul(Kind::slope(some.load(src + i)), some.load(diff_dst + i))); });
}

template <class Kind>
constexpr ActivationLoops loops_of() {
  return {forward<Kind>, backward<Kind>};
}

}  // namespace

const ActivationTable* find_activation_loops() {
  static constexpr ActivationTable table{loops_of<GeluTanh>(), loops_of<GeluErf>(), loops_of<Silu>(), loops_of<Relu>()};
  return &table;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(ActivationTable, activation_loops)
}  // namespace ppengine::ops::cpu
#endif
