// Attention over keys and values in bytes.
#include <ppengine/ops/cpu/loops_byte_cache.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_byte_cache.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const ByteCacheLoops* find_byte_cache_loops() { return nullptr; }
#else
namespace {

constexpr std::int64_t few_queries = 2;  // that read bytes as they are; for more, a block is widened once

PPENGINE_INLINE V widened(const float* p) { return load(p); }
PPENGINE_INLINE V widened(const std::int8_t* p) {
  constexpr hn::Rebind<std::int8_t, F> i8;
  return hn::ConvertTo(f32, hn::PromoteTo(i32, hn::LoadU(i8, p)));
}

// A block of one head.
struct Block {
  std::int8_t* bytes;
  float* scales;
};
Block block_at(std::byte* cache, std::int64_t index, std::int64_t width) {
  auto* const at = cache + index * byte_block_bytes(width);
  return {reinterpret_cast<std::int8_t*>(at), reinterpret_cast<float*>(at + byte_block * byte_row(width))};
}

// to[d · stride] = from[d] / scale; what is not finite makes the scale, and so all of the token, NaN.
float quantize(const float* from, std::int64_t width, std::int8_t* to, std::int64_t stride) {
  float largest = 0, zeros = 0;
  for (std::int64_t d = 0; d < width; ++d) largest = std::max(largest, std::abs(from[d])), zeros += from[d] * 0;
  if (zeros != 0 || std::isnan(zeros)) {
    for (std::int64_t d = 0; d < width; ++d) to[d * stride] = 0;
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float inverse = largest > 0 ? 127.0f / largest : 0.0f;
  for (std::int64_t d = 0; d < width; ++d) {
    const float value = std::clamp(from[d] * inverse, -127.0f, 127.0f);
    to[d * stride] = static_cast<std::int8_t>(value < 0 ? value - 0.5f : value + 0.5f);
  }
  return largest / 127.0f;
}

// The keys that a query sees of a block, and how its scores are made.
struct Seen {
  std::int64_t low, high;
  float scale, cap;
};

// What a query has added up so far.
struct Sum {
  float largest, total;
  float* result;  // [byte_row]
};

// scores[i] = scale · q·key i, for all keys of a block.
template <class T>
PPENGINE_INLINE void score(const T* keys, const float* scales, const float* q, std::int64_t width, const Seen& seen, float* scores) {
  constexpr std::int64_t registers = byte_block / lanes, at_once = registers < 8 ? registers : 8;
  for (std::int64_t first = 0; first < registers; first += at_once) {
    V sums[at_once];
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < at_once; ++r) sums[r] = zero();
    for (std::int64_t d = 0; d < width; ++d) {
      const V value = all(q[d]);
#pragma GCC unroll 8
      for (std::int64_t r = 0; r < at_once; ++r) sums[r] = fma(value, widened(keys + d * byte_block + (first + r) * lanes), sums[r]);
    }
#pragma GCC unroll 8
    for (std::int64_t r = 0; r < at_once; ++r) {
      const std::int64_t at = (first + r) * lanes;
      store(scores + at, hn::Mul(hn::Mul(sums[r], load(scales + at)), all(seen.scale)));
    }
  }
  if (seen.cap > 0)
    for (std::int64_t i = seen.low; i < seen.high; ++i) scores[i] = seen.cap * std::tanh(scores[i] / seen.cap);
}

// result = factor · result + sum over the seen keys of weights[i] · values[i], `Registers` of it.
template <int Registers, class T>
PPENGINE_INLINE void add_values(float* result, float factor, const float* weights, const T* values, std::int64_t row, const Seen& seen) {
  V sums[Registers];
#pragma GCC unroll 4
  for (int r = 0; r < Registers; ++r) sums[r] = hn::Mul(load(result + r * lanes), all(factor));
  for (std::int64_t i = seen.low; i < seen.high; ++i) {
    const V weight = all(weights[i]);
#pragma GCC unroll 4
    for (int r = 0; r < Registers; ++r) sums[r] = fma(weight, widened(values + i * row + r * lanes), sums[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < Registers; ++r) store(result + r * lanes, sums[r]);
}

// One query meets one block.
template <class T>
void meet(const T* keys, const float* key_scales, const T* values, const float* value_scales, const float* q, std::int64_t width,
          const Seen& seen, Sum& sum) {
  HWY_ALIGN float weights[byte_block];
  score(keys, key_scales, q, width, seen, weights);
  float now = sum.largest;
  for (std::int64_t i = seen.low; i < seen.high; ++i) now = std::max(now, weights[i]);
  const float factor = hn::GetLane(exponential(all(sum.largest - now)));
  sum.largest = now;
  std::fill_n(weights, seen.low, lowest_score);
  std::fill(weights + seen.high, weights + byte_block, lowest_score);
  V powers = zero();
  for (std::int64_t i = 0; i < byte_block; i += lanes) {
    const V power = exponential(hn::Sub(load(weights + i), all(now)));
    powers = hn::Add(powers, power);
    store(weights + i, hn::Mul(power, load(value_scales + i)));
  }
  sum.total = sum.total * factor + sum_of(powers);
  const std::int64_t row = byte_row(width);
  std::int64_t d = 0;
  for (; d + 4 * lanes <= row; d += 4 * lanes) add_values<4>(sum.result + d, factor, weights, values + d, row, seen);
  for (; d < row; d += lanes) add_values<1>(sum.result + d, factor, weights, values + d, row, seen);
}

void widen(const std::int8_t* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; i += lanes) store(to + i, widened(from + i));
}

void attend(const ByteCacheStep& step, std::int64_t chunk) {
  const AttentionStep& a = step.of;
  const AttentionShape& s = a.shape;
  const std::int64_t kv_heads = s.heads / s.group, batch = chunk / kv_heads, kv_head = chunk % kv_heads, width = s.head_dim,
                     row = byte_row(width), before = a.filled[batch], queries = s.length * s.group;
  std::byte* const k_cache = step.k_cache + batch * step.sequence_bytes + kv_head * step.head_bytes;
  std::byte* const v_cache = step.v_cache + batch * step.sequence_bytes + kv_head * step.head_bytes;
  for (std::int64_t t = 0; t < s.length; ++t) {
    const std::int64_t slot = slot_of(s, a.filled, batch, before + t), token = batch * s.length + t;
    if (slot >= a.capacity) continue;
    const Block k = block_at(k_cache, slot / byte_block, width), v = block_at(v_cache, slot / byte_block, width);
    const std::int64_t at = slot % byte_block;
    k.scales[at] = quantize(a.k + token * a.k_stride + kv_head * width, width, k.bytes + at, byte_block);
    v.scales[at] = quantize(a.v + token * a.v_stride + kv_head * width, width, v.bytes + at * row, 1);
  }
  thread_local std::vector<float> results, wide;
  thread_local std::vector<Sum> sums;
  results.assign(static_cast<std::size_t>(queries * row), 0.0f);
  sums.clear();
  for (std::int64_t i = 0; i < queries; ++i) sums.push_back({lowest_score, 0, results.data() + i * row});
  if (queries > few_queries) wide.resize(static_cast<std::size_t>(2 * byte_block * row));
  const std::int64_t oldest = std::max<std::int64_t>(before - s.window + 1, 0);
  for (std::int64_t first = oldest / byte_block * byte_block; first < before + s.length; first += byte_block) {
    const std::int64_t index = slot_of(s, a.filled, batch, first) / byte_block;
    const Block k = block_at(k_cache, index, width), v = block_at(v_cache, index, width);
    float *const wide_k = wide.data(), *const wide_v = wide_k + byte_block * row;
    if (queries > few_queries) widen(k.bytes, byte_block * width, wide_k), widen(v.bytes, byte_block * row, wide_v);
    for (std::int64_t i = 0; i < queries; ++i) {
      const std::int64_t t = i / s.group, head = kv_head * s.group + i % s.group, position = before + t;
      const Seen seen{std::max<std::int64_t>(position - s.window + 1 - first, 0), std::min(position + 1 - first, byte_block), s.scale,
                      s.cap};
      if (seen.low >= seen.high) continue;
      const float* const q = a.q + (batch * s.length + t) * s.q_token + head * width;
      if (queries > few_queries)
        meet(wide_k, k.scales, wide_v, v.scales, q, width, seen, sums[static_cast<std::size_t>(i)]);
      else
        meet(k.bytes, k.scales, v.bytes, v.scales, q, width, seen, sums[static_cast<std::size_t>(i)]);
    }
  }
  for (std::int64_t i = 0; i < queries; ++i) {
    const std::int64_t t = i / s.group, head = kv_head * s.group + i % s.group;
    float* const dst = a.dst + ((batch * s.length + t) * s.heads + head) * width;
    const Sum& sum = sums[static_cast<std::size_t>(i)];
    for (std::int64_t d = 0; d < width; ++d) dst[d] = sum.result[d] / sum.total;
  }
}

}  // namespace

const ByteCacheLoops* find_byte_cache_loops() {
  static constexpr ByteCacheLoops loops{attend};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(ByteCacheLoops, byte_cache_loops)
}  // namespace ppengine::ops::cpu
#endif
