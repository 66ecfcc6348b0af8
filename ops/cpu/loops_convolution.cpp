// Loops of convolutions: rows of a picture to and from the panels of a product.
#include <ppengine/ops/cpu/loops_convolution.hpp>

#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_convolution.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const ConvolutionLoops* find_convolution_loops() { return nullptr; }
#else
namespace {

void take_rows(const float* from, const std::int64_t* offsets, std::int64_t rows, std::int64_t width, float* to, std::int64_t row) {
  const auto copy = [&](auto left, auto right) PPENGINE_INLINED {
    for (std::int64_t r = 0; r < rows; ++r, to += row) {
      const float* const src = from + offsets[r];
      left.store(to, left.load(src));
      right.store(to + lanes, right.load(src + lanes));
    }
  };
  if (width == panel_width) return copy(Whole(), Whole());
  if (width < panel_width && width > lanes) return copy(Whole(), First(width - lanes));
  for (std::int64_t r = 0; r < rows; ++r, to += row) {
    const float* const src = from + offsets[r];
    for_lanes(width, [&](std::int64_t i, auto some) PPENGINE_INLINED { some.store(to + i, some.load(src + i)); });
  }
}

void add_rows(const float* from, std::int64_t row, const std::int64_t* offsets, std::int64_t rows, std::int64_t width, float* into) {
  const auto add = [&](auto left, auto right) PPENGINE_INLINED {
    for (std::int64_t r = 0; r < rows; ++r, from += row) {
      float* const dst = into + offsets[r];
      left.store(dst, hn::Add(left.load(dst), left.load(from)));
      right.store(dst + lanes, hn::Add(right.load(dst + lanes), right.load(from + lanes)));
    }
  };
  if (width == panel_width) return add(Whole(), Whole());
  for (std::int64_t r = 0; r < rows; ++r, from += row) {
    float* const dst = into + offsets[r];
    for_lanes(width,
              [&](std::int64_t i, auto some) PPENGINE_INLINED { some.store(dst + i, hn::Add(some.load(dst + i), some.load(from + i))); });
  }
}

float sum(const float* from, std::int64_t count) {
  V parts[4] = {zero(), zero(), zero(), zero()};
  std::int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) parts[p] = hn::Add(parts[p], load(from + i + p * lanes));
  }
  for_lanes(count - i, [&](std::int64_t at, auto some) PPENGINE_INLINED { parts[0] = hn::Add(parts[0], some.load(from + i + at)); });
  return sum_of(hn::Add(hn::Add(parts[0], parts[1]), hn::Add(parts[2], parts[3])));
}

}  // namespace

const ConvolutionLoops* find_convolution_loops() {
  static const ConvolutionLoops loops{take_rows, add_rows, sum};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(ConvolutionLoops, convolution_loops)
}  // namespace ppengine::ops::cpu
#endif
