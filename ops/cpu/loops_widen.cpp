// Loops that widen parts of rows of narrow weights.
#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_widen.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const WidenLoops* find_widen_loops() { return nullptr; }
#else
namespace {

// Plain loops that g++ makes vectors of.
void bf16(const std::uint16_t* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(from[i]) << 16);
}
void int8(const std::int8_t* from, float scale, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = scale * static_cast<float>(from[i]);
}
void int4(const std::uint8_t* from, float step, float least, std::int64_t count, float* to) {
  for (; count >= 32; count -= 32, from += 16, to += 32) {
    for (int i = 0; i < 16; ++i) to[i] = static_cast<float>(from[i] & 15) * step + least;
    for (int i = 0; i < 16; ++i) to[i + 16] = static_cast<float>(from[i] >> 4) * step + least;
  }
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(i < 16 ? from[i] & 15 : from[i - 16] >> 4) * step + least;
}

}  // namespace

const WidenLoops* find_widen_loops() {
  static constexpr WidenLoops loops{bf16, int8, int4};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(WidenLoops, widen_loops)
}  // namespace ppengine::ops::cpu
#endif
