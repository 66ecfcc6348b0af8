// Loops of layer norm and RMS norm. The formulas are those of ops/kernels/norm.cpp.
#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_norm.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const NormLoops* find_norm_loops() { return nullptr; }
#else
namespace {

void forward(const Norms& n, const float* src, float* dst, float* mean, float* rstd, std::int64_t rows) {
  const float share = 1.0f / static_cast<float>(n.width);
  for (std::int64_t row = 0; row < rows; ++row, src += n.width, dst += n.width) {
    const float m =
        n.centered ? share * sum_over(n.width, [&](std::int64_t i, auto some) PPENGINE_INLINED { return some.load(src + i); }) : 0;
    const float variance = share * sum_over(n.width, [&](std::int64_t i, auto some) PPENGINE_INLINED {
                             const V d = some.keep(hn::Sub(some.load(src + i), all(m)));
                             return hn::Mul(d, d);
                           });
    const float r = 1.0f / __builtin_sqrtf(variance + n.epsilon);
    for_lanes(n.width, [&](std::int64_t i, auto some) PPENGINE_INLINED {
      const V normal = hn::Mul(hn::Sub(some.load(src + i), all(m)), all(r));
      const V beta = n.beta ? some.load(n.beta + i) : zero();
      some.store(dst + i, fma(normal, some.load(n.gamma + i), beta));
    });
    if (n.centered && mean) mean[row] = m;
    if (rstd) rstd[row] = r;
  }
}

// With x̂ = (x - mean) · rstd and g = diff · gamma: diff_src = rstd (g - mean(g) - x̂ mean(g x̂)); RMS norm lacks mean(g).
void backward_input(const Norms& n, const float* src, const float* diff_dst, const float* mean, const float* rstd, const float* add,
                    float* diff_src, std::int64_t rows) {
  const float share = 1.0f / static_cast<float>(n.width);
  for (std::int64_t row = 0; row < rows; ++row, src += n.width, diff_dst += n.width, diff_src += n.width) {
    const float m = n.centered ? mean[row] : 0, r = rstd[row];
    const auto weighted = [&](std::int64_t i, auto some)
                              PPENGINE_INLINED { return hn::Mul(some.load(diff_dst + i), some.load(n.gamma + i)); };
    const auto normal = [&](std::int64_t i, auto some) PPENGINE_INLINED { return hn::Mul(hn::Sub(some.load(src + i), all(m)), all(r)); };
    const float along =
        share * sum_over(n.width, [&](std::int64_t i, auto some) PPENGINE_INLINED { return hn::Mul(weighted(i, some), normal(i, some)); });
    const float level = n.centered ? share * sum_over(n.width, weighted) : 0;
    for_lanes(n.width, [&](std::int64_t i, auto some) PPENGINE_INLINED {
      const V added = add ? some.load(add + i) : zero();
      const V gradient = hn::NegMulAdd(normal(i, some), all(along), hn::Sub(weighted(i, some), all(level)));
      some.store(diff_src + i, fma(all(r), gradient, added));
    });
    if (add) add += n.width;
  }
}

constexpr int columns = 4;  // registers

void backward_weight(const Norms& n, const float* src, const float* diff_dst, const float* mean, const float* rstd, std::int64_t rows,
                     std::int64_t width, float* diff_gamma, float* diff_beta, bool accumulate) {
  const auto sum = [&](auto part) PPENGINE_INLINED {
    V gamma[columns], beta[columns];
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      gamma[c] = accumulate ? part(c).load(diff_gamma + c * lanes) : zero();
      beta[c] = accumulate && diff_beta ? part(c).load(diff_beta + c * lanes) : zero();
    }
    for (std::int64_t row = 0; row < rows; ++row, src += n.width, diff_dst += n.width) {
      const V m = all(n.centered ? mean[row] : 0), r = all(rstd[row]);
#pragma GCC unroll 4
      for (int c = 0; c < columns; ++c) {
        const V d = part(c).load(diff_dst + c * lanes);
        gamma[c] = fma(d, hn::Mul(hn::Sub(part(c).load(src + c * lanes), m), r), gamma[c]);
        beta[c] = hn::Add(beta[c], d);
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < columns; ++c) {
      part(c).store(diff_gamma + c * lanes, gamma[c]);
      if (diff_beta) part(c).store(diff_beta + c * lanes, beta[c]);
    }
  };
  if (width >= columns * lanes)
    sum([](int) PPENGINE_INLINED { return Whole(); });
  else
    sum([=](int c) PPENGINE_INLINED { return First(width - c * lanes); });
}

}  // namespace

const NormLoops* find_norm_loops() {
  static constexpr NormLoops loops{columns * lanes, forward, backward_input, backward_weight};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(NormLoops, norm_loops)
}  // namespace ppengine::ops::cpu
#endif
