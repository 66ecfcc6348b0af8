// Attention of single tokens over a cache and rotary embedding on CPUs: a work-item is a thread here. f32.
#pragma once

#include "attention_scores.hpp"
#include "few_rows_steps.hpp"
#include "lanes.hpp"
#include "math.hpp"

constexpr int keys_held = 64;      // scores that are held at a time
constexpr long widest_head = 256;  // as in ops/sycl/attention.cpp

// scores[i] = score of q · keys[i] for `count` keys; gives the largest, not below `largest`.
inline float score(float* scores, float largest, const float* q, const float* keys, long stride, long count, const AttentionShape& s) {
  const long width = s.head_dim;
  for (long i = 0; i < count; ++i) {
    const float* const key = keys + i * stride;
    scores[i] = score_of(s, sum_over(width, [=](long d, auto kind) { return Values{q}(d, kind) * Values{key}(d, kind); }));
    largest = sycl::fmax(largest, scores[i]);
  }
  return largest;
}

// result[d] += sum over i of weights[i] · values[i][d]
inline void add_weighted(float* result, const float* weights, const float* values, long stride, long count, long width) {
  constexpr int at_once = 4;
  long d = 0;
  for (; d + at_once * few_lanes <= width; d += at_once * few_lanes) {
    Lanes sum[at_once];
    for (int j = 0; j < at_once; ++j) sum[j] = load_lanes(result + d + j * few_lanes);
    for (long i = 0; i < count; ++i)
      for (int j = 0; j < at_once; ++j) sum[j] += weights[i] * load_lanes(values + i * stride + d + j * few_lanes);
    for (int j = 0; j < at_once; ++j) *reinterpret_cast<LanesInMemory*>(result + d + j * few_lanes) = sum[j];
  }
  for (long i = 0; i < count; ++i)
    for (long rest = d; rest < width; ++rest) result[rest] += weights[i] * values[i * stride + rest];
}

// One head of one new token. Keys and values of the new tokens before it are read from where they came, so that no order between heads and
// tokens is needed.
inline void attend(const AttentionStep& a, long chunk) {
  const AttentionShape& s = a.shape;
  const long head = chunk % s.heads, token = chunk / s.heads, batch = token / s.length, t = token % s.length;
  const long kv_head = head / s.group, before = a.filled[batch], keys = before + t + 1, width = s.head_dim;
  const float* const q = a.q + token * s.q_token + head * width;
  const float* const k = a.k + batch * s.length * a.k_stride + kv_head * width;
  const float* const v = a.v + batch * s.length * a.v_stride + kv_head * width;
  float* const k_cache = a.k_cache + batch * s.k_batch + kv_head * s.k_head;
  float* const v_cache = a.v_cache + batch * s.v_batch + kv_head * s.v_head;
  if (const long slot = slot_of(s, a.filled, batch, before + t); head % s.group == 0 && slot < a.capacity)
    for (long d = 0; d < width; ++d) {
      k_cache[slot * s.k_token + d] = k[t * a.k_stride + d];
      v_cache[slot * s.v_token + d] = v[t * a.v_stride + d];
    }
  float scores[keys_held], result[widest_head], largest = lowest_score, total = 0;
  for (long d = 0; d < width; ++d) result[d] = 0;
  for (long first = first_seen(s, before + t), end; first < keys; first = end) {
    end = lesser((first / keys_held + 1) * keys_held, keys);  // nothing crosses the end of a page or ring
    const long count = end - first, cached = lesser(count, greater(before - first, 0L)), slot = slot_of(s, a.filled, batch, first);
    const float* const new_k = k + (first + cached - before) * a.k_stride;
    const float* const new_v = v + (first + cached - before) * a.v_stride;
    float now = score(scores, largest, q, k_cache + slot * s.k_token, s.k_token, cached, s);
    now = score(scores + cached, now, q, new_k, a.k_stride, count - cached, s);
    const float factor = fast_exp(largest - now);
    largest = now;
    total *= factor;
    for (long i = 0; i < count; ++i) scores[i] = fast_exp(scores[i] - now);
    for (long i = 0; i < count; ++i) total += scores[i];
    for (long d = 0; d < width; ++d) result[d] *= factor;
    add_weighted(result, scores, v_cache + slot * s.v_token, s.v_token, cached, width);
    add_weighted(result, scores + cached, new_v, a.v_stride, count - cached, width);
  }
  const float inverse = 1.0f / total;
  for (long d = 0; d < width; ++d) a.dst[chunk * width + d] = result[d] * inverse;
}

// All heads of one token; src may be dst where heads stay in their places.
inline void rotate(const RotaryStep& step, long token) {
  const RotaryShape& r = step.shape;
  const long position = (step.first ? step.first[token / r.length] : 0) + token % r.length;
  const float *const cosines = step.cosines + position * r.half, *const sines = step.sines + position * r.half;
  for (long head = 0; head < r.heads; ++head) {
    const float* const from = step.src + token * step.src_stride + own_head(r, head) * r.head_dim;
    float* const to = step.dst + token * step.dst_stride + head * r.head_dim;
    const long half = head < r.turned ? r.half : 0;
    for (long d = 0; d < half; ++d) {
      const float x = from[d], y = from[d + half];
      to[d] = x * cosines[d] - y * sines[d];
      to[d + half] = y * cosines[d] + x * sines[d];
    }
    for (long d = 2 * half; d < r.head_dim; ++d) to[d] = from[d];
  }
}
