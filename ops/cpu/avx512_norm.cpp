// Layer norm and RMS norm for AVX-512, compiled like avx512.cpp. The formulas are those of ops/kernels/norm.cpp.
#include <ppengine/ops/cpu/avx512.hpp>
#include <ppengine/ops/cpu/avx512_lanes.hpp>

namespace ppengine::ops::cpu::avx512 {
namespace {

// The sums of term(i, mask) over [0, width), each in four parts: an addition takes four cycles.
template <class Term>
PPENGINE_INLINE float row_sum(int64_t width, const Term& term) {
  constexpr __mmask16 whole = 0xffff;
  __m512 parts[4] = {all(0), all(0), all(0), all(0)};
  int64_t i = 0;
  for (; i + 4 * lanes <= width; i += 4 * lanes) {
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) parts[p] += term(i + p * lanes, whole);
  }
  for (; i + lanes <= width; i += lanes) parts[0] += term(i, whole);
  if (i < width) parts[1] += term(i, first(width - i));
  return _mm512_reduce_add_ps((parts[0] + parts[1]) + (parts[2] + parts[3]));
}

}  // namespace

void norm_forward(const Norms& n, const float* src, float* dst, float* mean, float* rstd, int64_t rows) {
  const float share = 1.0f / static_cast<float>(n.width);
  for (int64_t row = 0; row < rows; ++row, src += n.width, dst += n.width) {
    const float m = n.centered ? share * row_sum(n.width, [&](int64_t i, __mmask16 some) { return _mm512_maskz_loadu_ps(some, src + i); }) : 0;
    const float variance = share * row_sum(n.width, [&](int64_t i, __mmask16 some) {
                             const __m512 d = _mm512_maskz_sub_ps(some, _mm512_maskz_loadu_ps(some, src + i), all(m));
                             return d * d;
                           });
    const float r = 1.0f / __builtin_sqrtf(variance + n.epsilon);
    for_lanes(n.width, [&](int64_t i, __mmask16 some) {
      const __m512 normal = (_mm512_maskz_loadu_ps(some, src + i) - all(m)) * all(r);
      const __m512 beta = n.beta ? _mm512_maskz_loadu_ps(some, n.beta + i) : all(0);
      _mm512_mask_storeu_ps(dst + i, some, fma(normal, _mm512_maskz_loadu_ps(some, n.gamma + i), beta));
    });
    if (n.centered && mean) mean[row] = m;
    if (rstd) rstd[row] = r;
  }
}

// With x̂ = (x - mean) · rstd and g = diff · gamma: diff_src = rstd (g - mean(g) - x̂ mean(g x̂)); RMS norm lacks mean(g).
void norm_backward_input(const Norms& n, const float* src, const float* diff_dst, const float* mean, const float* rstd, const float* add,
                         float* diff_src, int64_t rows) {
  const float share = 1.0f / static_cast<float>(n.width);
  for (int64_t row = 0; row < rows; ++row, src += n.width, diff_dst += n.width, diff_src += n.width) {
    const float m = n.centered ? mean[row] : 0, r = rstd[row];
    const auto weighted = [&](int64_t i, __mmask16 some) {
      return _mm512_maskz_loadu_ps(some, diff_dst + i) * _mm512_maskz_loadu_ps(some, n.gamma + i);
    };
    const auto normal = [&](int64_t i, __mmask16 some) { return (_mm512_maskz_loadu_ps(some, src + i) - all(m)) * all(r); };
    const float along = share * row_sum(n.width, [&](int64_t i, __mmask16 some) { return weighted(i, some) * normal(i, some); });
    const float level = n.centered ? share * row_sum(n.width, weighted) : 0;
    for_lanes(n.width, [&](int64_t i, __mmask16 some) {
      const __m512 added = add ? _mm512_maskz_loadu_ps(some, add + i) : all(0);
      const __m512 gradient = weighted(i, some) - all(level) - normal(i, some) * all(along);
      _mm512_mask_storeu_ps(diff_src + i, some, fma(all(r), gradient, added));
    });
    if (add) add += n.width;
  }
}

void norm_backward_weight(const Norms& n, const float* src, const float* diff_dst, const float* mean, const float* rstd, int64_t rows,
                          int64_t width, float* diff_gamma, float* diff_beta, bool accumulate) {
  constexpr int count = norm_columns / lanes;
  __mmask16 there[count];
  __m512 gamma[count], beta[count];
#pragma GCC unroll 4
  for (int c = 0; c < count; ++c) {
    there[c] = first(width - c * lanes);
    gamma[c] = accumulate ? _mm512_maskz_loadu_ps(there[c], diff_gamma + c * lanes) : all(0);
    beta[c] = accumulate && diff_beta ? _mm512_maskz_loadu_ps(there[c], diff_beta + c * lanes) : all(0);
  }
  for (int64_t row = 0; row < rows; ++row, src += n.width, diff_dst += n.width) {
    const __m512 m = all(n.centered ? mean[row] : 0), r = all(rstd[row]);
#pragma GCC unroll 4
    for (int c = 0; c < count; ++c) {
      const __m512 d = _mm512_maskz_loadu_ps(there[c], diff_dst + c * lanes);
      gamma[c] = fma(d, (_mm512_maskz_loadu_ps(there[c], src + c * lanes) - m) * r, gamma[c]);
      beta[c] += d;
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < count; ++c) {
    _mm512_mask_storeu_ps(diff_gamma + c * lanes, there[c], gamma[c]);
    if (diff_beta) _mm512_mask_storeu_ps(diff_beta + c * lanes, there[c], beta[c]);
  }
}

}  // namespace ppengine::ops::cpu::avx512
