// Activations for AVX-512, compiled like avx512.cpp. The formulas are those of ops/kernels/activation.cpp and math.hpp.
#include <ppengine/ops/cpu/avx512.hpp>
#include <ppengine/ops/cpu/avx512_lanes.hpp>

namespace ppengine::ops::cpu::avx512 {
namespace {

struct Silu {
  static __m512 forward(__m512 x) { return x * sigmoid(x); }
  static __m512 slope(__m512 x) {
    const __m512 s = sigmoid(x);
    return s * fma(x, all(1.0f) - s, 1.0f);
  }
};

struct Relu {
  static __m512 forward(__m512 x) { return raised(x, 0.0f); }
  static __m512 slope(__m512 x) { return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, all(0.0f), _CMP_GT_OQ), all(1.0f)); }
};

struct GeluTanh {
  static constexpr float k2 = 2.0f * 0.79788456080286535588f, c = 0.044715f;
  static __m512 forward(__m512 x) { return x * sigmoid(x * all(k2) * fma(x * all(c), x, 1.0f)); }
  static __m512 slope(__m512 x) {
    x = raised(at_most(x, 12.0f), -12.0f);  // beyond, the sigmoid is 0 or 1 in f32
    const __m512 square = x * x;
    const __m512 s = sigmoid(x * all(k2) * fma(square, all(c), 1.0f));
    return fma(x * s * (all(1.0f) - s), fma(square, all(3.0f * c * k2), k2), s);
  }
};

__m512 erf(__m512 x) {
  const __m512 t = at_most(_mm512_abs_ps(x), 4.0f), s = t * t;  // erf(4) is 1 in f32
  __m512 far = fma(all(-1.72853470e-5f), t, 3.83197126e-4f);
  far = fma(far, s, fma(all(-3.88396438e-3f), t, 2.42546219e-2f));
  far = fma(far, t, -1.06777877e-1f);
  far = fma(far, t, -6.34846687e-1f);
  far = fma(far, t, -1.28717512e-1f);
  far = all(1.0f) - exponential(fma(far, t, -t));
  far = _mm512_or_ps(far, _mm512_and_ps(x, all(-0.0f)));  // the sign
  __m512 near = fma(all(-5.96761703e-4f), s, 4.99119423e-3f);
  near = fma(near, s, -2.67681349e-2f);
  near = fma(near, s, 1.12819925e-1f);
  near = fma(near, s, -3.76125336e-1f);
  near = fma(near, s, 1.28379166e-1f);
  near = fma(near, x, x);
  return _mm512_mask_mov_ps(near, _mm512_cmp_ps_mask(t, all(0.927734375f), _CMP_GT_OQ), far);
}

struct GeluErf {
  static constexpr float root_half = 0.70710678118654752440f, density = 0.39894228040143267794f;
  static __m512 cumulative(__m512 x) { return all(0.5f) * (all(1.0f) + erf(x * all(root_half))); }
  static __m512 forward(__m512 x) { return x * cumulative(x); }
  static __m512 slope(__m512 x) { return fma(x * all(density), exponential(x * x * all(-0.5f)), cumulative(x)); }
};

template <class Kind>
void forward(const float* src, float* dst, int64_t count) {
  for_lanes(count, [&](int64_t i, __mmask16 some) __attribute__((always_inline)) {
    _mm512_mask_storeu_ps(dst + i, some, Kind::forward(_mm512_maskz_loadu_ps(some, src + i)));
  });
}

template <class Kind>
void backward(const float* src, const float* diff_dst, float* diff_src, int64_t count) {
  for_lanes(count, [&](int64_t i, __mmask16 some) __attribute__((always_inline)) {
    const __m512 slope = Kind::slope(_mm512_maskz_loadu_ps(some, src + i));
    _mm512_mask_storeu_ps(diff_src + i, some, slope * _mm512_maskz_loadu_ps(some, diff_dst + i));
  });
}

template <class Kind>
constexpr ActivationPasses passes{forward<Kind>, backward<Kind>};

}  // namespace

constexpr ActivationPasses gelu_tanh = passes<GeluTanh>, gelu_erf = passes<GeluErf>, silu = passes<Silu>, relu = passes<Relu>;

}  // namespace ppengine::ops::cpu::avx512
