// Loops over a channel's elements.
#include <ppengine/ops/cpu/loops_channels.hpp>

#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_channels.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const ChannelLoops* find_channel_loops() { return nullptr; }
#else
namespace {

float sum(const float* x, std::int64_t count) {
  return sum_over(count, [&](std::int64_t i, auto some) PPENGINE_INLINED { return some.load(x + i); });
}
float squares(const float* x, float mean, std::int64_t count) {
  return sum_over(count, [&](std::int64_t i, auto some) PPENGINE_INLINED {
    const V d = some.keep(hn::Sub(some.load(x + i), all(mean)));
    return hn::Mul(d, d);
  });
}
void products(const float* g, const float* x, float mean, std::int64_t count, float& total, float& dot) {
  total += sum(g, count);
  dot += sum_over(
      count, [&](std::int64_t i, auto some) PPENGINE_INLINED { return hn::Mul(some.load(g + i), hn::Sub(some.load(x + i), all(mean))); });
}
void scale(const float* x, float a, float b, float* y, std::int64_t count) {
  for_lanes(count, [&](std::int64_t i, auto some) PPENGINE_INLINED { some.store(y + i, fma(all(a), some.load(x + i), all(b))); });
}
void combine(const float* g, const float* x, float a, float b, float c, float* y, std::int64_t count) {
  for_lanes(count, [&](std::int64_t i, auto some)
                       PPENGINE_INLINED { some.store(y + i, fma(all(a), some.load(g + i), fma(all(b), some.load(x + i), all(c)))); });
}

}  // namespace

const ChannelLoops* find_channel_loops() {
  static const ChannelLoops loops{sum, squares, products, scale, combine};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(ChannelLoops, channel_loops)
}  // namespace ppengine::ops::cpu
#endif
