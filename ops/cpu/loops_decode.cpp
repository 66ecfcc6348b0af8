// Loops of decoding: linear layers over few rows in f32 arithmetic, and attention of single tokens over a cache.
#include <algorithm>
#include <cmath>

#include <ppengine/ops/cpu/loops_steps.hpp>
#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_decode.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const DecodeLoops* find_decode_loops() { return nullptr; }
#else
namespace {

constexpr std::int64_t line = 64;  // bytes that are fetched at once
constexpr std::int64_t fetched_ahead =
    8192;  // bytes ahead of what is read, at least: rows end before the CPU sees that they are read in order

PPENGINE_INLINE V weights_at(const float* p) { return load(p); }
PPENGINE_INLINE V weights_at(const std::uint16_t* p) {
  constexpr hn::Rebind<std::uint16_t, F> u16;
  constexpr hn::Repartition<std::uint32_t, F> u32;
  return hn::BitCast(f32, hn::ShiftLeft<16>(hn::PromoteTo(u32, hn::LoadU(u16, p))));
}
PPENGINE_INLINE V weights_at(const std::int8_t* p) {
  constexpr hn::Rebind<std::int8_t, F> i8;
  return hn::ConvertTo(f32, hn::PromoteTo(i32, hn::LoadU(i8, p)));
}
PPENGINE_INLINE float weight_at(const float* p) { return *p; }
PPENGINE_INLINE float weight_at(const std::uint16_t* p) { return __builtin_bit_cast(float, static_cast<std::uint32_t>(*p) << 16); }
PPENGINE_INLINE float weight_at(const std::int8_t* p) { return static_cast<float>(*p); }

// sums[r][k] for `Outs` outputs from `out` on and `Rows` rows. Whatever is computed beside it, each is added up in the same order. The
// weights that come next are fetched meanwhile: all of them, or where these outputs have several passes, for other rows, a part in each.
template <class W, int Rows, int Outs, bool FetchesAll = false>
PPENGINE_INLINE void dot_rows(const LinearStep& step, const float* const* x, std::int64_t out, float* sums, std::int64_t row_sums,
                              std::int64_t pass = 0, std::int64_t passes = 1) {
  const std::int64_t in = step.in, group = sizeof(W) == 1 ? step.group : in, groups = (in + group - 1) / group;
  const W* w[Outs];
  const float* scales[Outs];
  V total[Outs][Rows];
  float rest[Outs][Rows];
#pragma GCC unroll 8
  for (int k = 0; k < Outs; ++k) {
    const std::int64_t o = std::min(out + k, static_cast<std::int64_t>(step.out) - 1);
    w[k] = static_cast<const W*>(step.weight) + o * in;
    scales[k] = step.scales + o * groups;
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) total[k][r] = zero(), rest[k][r] = 0;
  }
  constexpr std::int64_t together = Outs * sizeof(W);  // bytes per input; the rows behind these are fetched in their order
  constexpr std::int64_t most_fetched = together * lanes / (FetchesAll ? 1 : 2);
  const std::int64_t fetched = together * lanes / (FetchesAll ? 1 : passes),
                     ahead = (fetched_ahead + together * in - 1) / (together * in) * in;
  const char* next = reinterpret_cast<const char*>(w[0]) + together * (ahead + pass * in / passes);
  // What is left is added by std::fma: left to itself, the compiler rounds in between for some numbers of rows and not for others.
  const auto part = [&](std::int64_t i, std::int64_t last, V(&sum)[Outs][Rows], float (&tail)[Outs][Rows]) PPENGINE_INLINED {
    for (; i + lanes <= last; i += lanes) {
#pragma GCC unroll 8
      for (std::int64_t at = 0; at < most_fetched; at += line) __builtin_prefetch(next + at, 0, 2);
      next += fetched;
      V values[Rows];
#pragma GCC unroll 4
      for (int r = 0; r < Rows; ++r) values[r] = load(x[r] + i);
#pragma GCC unroll 8
      for (int k = 0; k < Outs; ++k) {
        const V weights = weights_at(w[k] + i);
#pragma GCC unroll 4
        for (int r = 0; r < Rows; ++r) sum[k][r] = fma(weights, values[r], sum[k][r]);
      }
    }
    for (; i < last; ++i)
      for (int r = 0; r < Rows; ++r)
        for (int k = 0; k < Outs; ++k) tail[k][r] = std::fma(weight_at(w[k] + i), x[r][i], tail[k][r]);
  };
  if constexpr (sizeof(W) > 1) {
    part(0, in, total, rest);
  } else {
    for (std::int64_t g = 0; g < groups; ++g) {
      V sum[Outs][Rows];
      float tail[Outs][Rows];
#pragma GCC unroll 8
      for (int k = 0; k < Outs; ++k)
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) sum[k][r] = zero(), tail[k][r] = 0;
      part(g * group, std::min((g + 1) * group, in), sum, tail);
#pragma GCC unroll 8
      for (int k = 0; k < Outs; ++k)
#pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) {
          total[k][r] = fma(sum[k][r], all(scales[k][g]), total[k][r]);
          rest[k][r] = std::fma(tail[k][r], scales[k][g], rest[k][r]);
        }
    }
  }
#pragma GCC unroll 8
  for (int k = 0; k < Outs; ++k)
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) sums[r * row_sums + k] = sum_of(total[k][r]) + rest[k][r];
}

// Four outputs of several rows, a few rows at a time: as many as have sums, values and a weight in registers.
template <class W>
PPENGINE_INLINE void dot_groups_of_rows(const LinearStep& step, const float* const* x, std::int64_t rows, std::int64_t out, float* sums) {
  constexpr std::int64_t tall = PPENGINE_AVX512 || HWY_ARCH_ARM_A64 ? 4 : 3;
  const std::int64_t groups = (rows + tall - 1) / tall;
  // Where everything is in the first cache, AVX-512 needs less time than memory, and what the CPU is asked for too fast it drops: each pass
  // asks for all of it then (a fifth less time for 8 rows of 768 in f32; nothing is gained with wider rows or narrower weights).
  constexpr std::int64_t widest_in_cache = PPENGINE_AVX512 && sizeof(W) == 4 ? 1024 : 0;
  const bool fetches_all = groups == 1 || step.in <= widest_in_cache;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::int64_t row = g * rows / groups, height = (g + 1) * rows / groups - row;
    float* const to = sums + row * outputs_at_once;
    with_height<tall>(height, [&](auto count) PPENGINE_INLINED {
      fetches_all ? dot_rows<W, count.value, 4, true>(step, x + row, out, to, outputs_at_once)
                  : dot_rows<W, count.value, 4>(step, x + row, out, to, outputs_at_once, g, groups);
    });
  }
}

template <class W>
void outputs_of_rows(const LinearStep& step, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  const float* x[most_few_rows];
  for (std::int64_t r = 0; r < rows; ++r) x[r] = step.src + r * step.in;
  float sums[most_few_rows * outputs_at_once];
  for (std::int64_t o = begin; o < end; o += outputs_at_once) {
    const std::int64_t last = std::min(o + outputs_at_once, end);
    if (rows == 1)
      for (std::int64_t k = o; k < last; k += 8) dot_rows<W, 1, 8, true>(step, x, k, sums + k - o, outputs_at_once);
    else
      for (std::int64_t k = o; k < last; k += 4) dot_groups_of_rows<W>(step, x, rows, k, sums + k - o);
    finish_outputs(step, sums, outputs_at_once, 0, rows, o, last);
  }
}

void linear(const LinearStep& step, WeightFormat format, std::int64_t rows, std::int64_t begin, std::int64_t end) {
  switch (format) {
    case WeightFormat::f32:
      return outputs_of_rows<float>(step, rows, begin, end);
    case WeightFormat::bf16:
      return outputs_of_rows<std::uint16_t>(step, rows, begin, end);
    case WeightFormat::int8:
      return outputs_of_rows<std::int8_t>(step, rows, begin, end);
    case WeightFormat::int4:
      break;  // by bytes
  }
}

constexpr std::int64_t keys_held = 64;  // scores that are held at a time

// scores[i] of q and keys[i]; gives the largest, not below `largest`.
float score(float* scores, float largest, const float* q, const float* keys, std::int64_t stride, std::int64_t count,
            const AttentionShape& s) {
  for (std::int64_t i = 0; i < count; ++i) {
    V sum = zero();
    for_lanes(s.head_dim,
              [&](std::int64_t d, auto some) PPENGINE_INLINED { sum = fma(some.load(q + d), some.load(keys + i * stride + d), sum); });
    const float one = s.scale * sum_of(sum);
    scores[i] = s.cap > 0 ? s.cap * std::tanh(one / s.cap) : one;
  }
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, scores[i]);
  return largest;
}

// result[d] += sum over i of weights[i] · values[i][d]
void add_weighted(float* result, const float* weights, const float* values, std::int64_t stride, std::int64_t count, std::int64_t width) {
  constexpr std::int64_t at_once = 4;
  std::int64_t d = 0;
  for (; d + at_once * lanes <= width; d += at_once * lanes) {
    V sums[at_once];
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < at_once; ++j) sums[j] = load(result + d + j * lanes);
    for (std::int64_t i = 0; i < count; ++i) {
      const V weight = all(weights[i]);
#pragma GCC unroll 4
      for (std::int64_t j = 0; j < at_once; ++j) sums[j] = fma(weight, load(values + i * stride + d + j * lanes), sums[j]);
    }
#pragma GCC unroll 4
    for (std::int64_t j = 0; j < at_once; ++j) store(result + d + j * lanes, sums[j]);
  }
  for_lanes(width - d, [&](std::int64_t rest, auto some) PPENGINE_INLINED {
    V sum = some.load(result + d + rest);
    for (std::int64_t i = 0; i < count; ++i) sum = fma(all(weights[i]), some.load(values + i * stride + d + rest), sum);
    some.store(result + d + rest, sum);
  });
}

// Keys and values of the new tokens before this one are read from where they came, so that no order between heads and tokens is needed.
void attend(const AttentionStep& a, std::int64_t chunk) {
  const AttentionShape& s = a.shape;
  const std::int64_t head = chunk % s.heads, token = chunk / s.heads, batch = token / s.length, t = token % s.length;
  const std::int64_t kv_head = head / s.group, before = a.filled[batch], keys = before + t + 1, width = s.head_dim;
  const float* const q = a.q + token * s.q_token + head * width;
  const float* const k = a.k + batch * s.length * a.k_stride + kv_head * width;
  const float* const v = a.v + batch * s.length * a.v_stride + kv_head * width;
  float* const k_cache = a.k_cache + batch * s.k_batch + kv_head * s.k_head;
  float* const v_cache = a.v_cache + batch * s.v_batch + kv_head * s.v_head;
  if (const std::int64_t slot = slot_of(s, a.filled, batch, before + t); head % s.group == 0 && slot < a.capacity) {
    std::copy_n(k + t * a.k_stride, width, k_cache + slot * s.k_token);
    std::copy_n(v + t * a.v_stride, width, v_cache + slot * s.v_token);
  }
  HWY_ALIGN float scores[keys_held], result[widest_head];
  float largest = lowest_score, total = 0;
  std::fill_n(result, width, 0.0f);
  for (std::int64_t first = std::max<std::int64_t>(before + t - s.window + 1, 0), end = 0; first < keys; first = end) {
    end = std::min((first / keys_held + 1) * keys_held, keys);  // nothing crosses the end of a page or ring
    const std::int64_t count = end - first, cached = std::min(count, std::max<std::int64_t>(before - first, 0)),
                       slot = slot_of(s, a.filled, batch, first);
    const float* const new_k = k + (first + cached - before) * a.k_stride;
    const float* const new_v = v + (first + cached - before) * a.v_stride;
    float now = score(scores, largest, q, k_cache + slot * s.k_token, s.k_token, cached, s);
    now = score(scores + cached, now, q, new_k, a.k_stride, count - cached, s);
    const float factor = hn::GetLane(exponential(all(largest - now)));
    largest = now;
    V sum = zero();
    for_lanes(count, [&](std::int64_t i, auto some) PPENGINE_INLINED {
      const V power = some.keep(exponential(hn::Sub(some.load(scores + i), all(now))));
      some.store(scores + i, power);
      sum = hn::Add(sum, power);
    });
    total = total * factor + sum_of(sum);
    for_lanes(width,
              [&](std::int64_t d, auto some) PPENGINE_INLINED { some.store(result + d, hn::Mul(some.load(result + d), all(factor))); });
    add_weighted(result, scores, v_cache + slot * s.v_token, s.v_token, cached, width);
    add_weighted(result, scores + cached, new_v, a.v_stride, count - cached, width);
  }
  float* const dst = a.dst + chunk * width;
  const V inverse = all(1.0f / total);
  for_lanes(width, [&](std::int64_t d, auto some) PPENGINE_INLINED { some.store(dst + d, hn::Mul(some.load(result + d), inverse)); });
}

}  // namespace

const DecodeLoops* find_decode_loops() {
  static constexpr DecodeLoops loops{linear, attend};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(DecodeLoops, decode_loops)
}  // namespace ppengine::ops::cpu
#endif
