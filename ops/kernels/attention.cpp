// What attention needs beside the tiles: softmax over score matrices, row products, one query over a cache, rotary embedding.
#include "attention_scores.hpp"
#include "values.hpp"

// A kernel over work-groups of 64. CPUs' compiler needs the size to make vectors of work-items across barriers and reductions. One size for
// the whole file: each size would become a bundle image of its own.
#define KERNEL_64                                                             \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::work_group_size<64>)) void

inline sycl::sub_group sub_group() { return syclext::this_work_item::get_sub_group(); }
inline float sum_over(sycl::sub_group group, float value) { return sycl::reduce_over_group(group, value, sycl::plus<float>()); }
inline float max_over(sycl::sub_group group, float value) { return sycl::reduce_over_group(group, value, sycl::maximum<float>()); }

// The rows of this sub-group: first, then every `step`-th.
struct Rows {
  long first, step;
};
inline Rows rows_of_sub_group() {
  const auto item = item_1d();
  const auto group = sub_group();
  const long per_group = group.get_group_linear_range();
  return {static_cast<long>(item.get_group_linear_id()) * per_group + static_cast<long>(group.get_group_linear_id()),
          static_cast<long>(item.get_group_range(0)) * per_group};
}

// scores[heads, queries, keys] -> probabilities in place, a sub-group per row. Query i has position first_query + i and sees keys up to it.
// log_sums[head·length + position].
KERNEL_64 causal_softmax(float* scores, float* log_sums, long rows, long queries, long keys, long first_query, long length,
                         const AttentionShape* shape) {
  const AttentionShape& a = *shape;
  const auto group = sub_group();
  const long lane = group.get_local_linear_id(), lanes = group.get_local_linear_range();
  const Rows mine = rows_of_sub_group();
  for (long row = mine.first; row < rows; row += mine.step) {
    float* const s = scores + row * keys;
    const long position = first_query + row % queries;
    const long from = first_seen(a, position), seen = position + 1;
    float largest = minus_infinity;
    for (long i = from + lane; i < seen; i += lanes) {
      s[i] = score_of(a, s[i]);
      largest = sycl::fmax(largest, s[i]);
    }
    largest = max_over(group, largest);
    float sum = 0;
    for (long i = from + lane; i < seen; i += lanes) {
      const float e = sycl::exp(s[i] - largest);
      s[i] = e;
      sum += e;
    }
    sum = sum_over(group, sum);
    const float factor = 1.0f / sum;
    for (long i = lane; i < keys; i += lanes) s[i] = i >= from && i < seen ? s[i] * factor : 0.0f;
    if (lane == 0) log_sums[row / queries * length + position] = largest + sycl::log(sum);
  }
}

// scores -> probabilities in place, diffs (the gradient of the probabilities) -> the gradient of the scores before scaling, in place.
KERNEL_64 causal_softmax_backward(float* scores, float* diffs, const float* log_sums, long rows, long queries, long keys, long first_query,
                                  long length, const AttentionShape* shape) {
  const AttentionShape& a = *shape;
  const auto group = sub_group();
  const long lane = group.get_local_linear_id(), lanes = group.get_local_linear_range();
  const Rows mine = rows_of_sub_group();
  for (long row = mine.first; row < rows; row += mine.step) {
    float* const s = scores + row * keys;
    float* const d = diffs + row * keys;
    const long position = first_query + row % queries;
    const long from = first_seen(a, position), seen = position + 1;
    const float log_sum = log_sums[row / queries * length + position];
    float delta = 0;
    for (long i = from + lane; i < seen; i += lanes) delta += sycl::exp(score_of(a, s[i]) - log_sum) * d[i];
    delta = sum_over(group, delta);
    for (long i = lane; i < keys; i += lanes) {
      const bool inside = i >= from && i < seen;
      const float score = inside ? score_of(a, s[i]) : 0.0f, p = inside ? sycl::exp(score - log_sum) : 0.0f;
      d[i] = inside ? score_slope(a, score) * p * (d[i] - delta) : 0.0f;
      s[i] = p;
    }
  }
}

// deltas[(b·heads + h)·length + t] = a[b,t,h,:] · b[b,t,h,:], a sub-group per row.
template <class T>
inline void row_products(const T* a, const T* b, float* deltas, long rows, long length, long heads, long head_dim) {
  const auto group = sub_group();
  const long lane = group.get_local_linear_id(), lanes = group.get_local_linear_range();
  const Rows mine = rows_of_sub_group();
  for (long row = mine.first; row < rows; row += mine.step) {
    float sum = 0;
    for (long d = lane; d < head_dim; d += lanes) sum += load(a, row * head_dim + d) * load(b, row * head_dim + d);
    sum = sum_over(group, sum);
    const long head = row % heads, token = row / heads;
    if (lane == 0) deltas[(token / length * heads + head) * length + token % length] = sum;
  }
}
KERNEL_64 row_products_f32(const float* a, const float* b, float* deltas, long rows, long length, long heads, long head_dim) {
  row_products(a, b, deltas, rows, length, heads, head_dim);
}
KERNEL_64 row_products_bf16(const bf16_bits* a, const bf16_bits* b, float* deltas, long rows, long length, long heads, long head_dim) {
  row_products(a, b, deltas, rows, length, heads, head_dim);
}

// New keys and values behind those that caches [batch, kv_heads, capacity, head_dim] hold: one work-group per token, whose heads it walks
// through, since divisions by sizes that are known when it runs cost more than the copies.
template <class T>
inline void append(const T* k, const T* v, const int* filled, T* k_cache, T* v_cache, const AttentionShape& s, long k_stride, long v_stride,
                   long capacity) {
  const long me = item_1d().get_local_id(0), token = item_1d().get_group(0), batch = token / s.length;
  const long position = slot_of(s, filled, batch, filled[batch] + token % s.length), kv_heads = s.heads / s.group;
  if (position >= capacity) return;
  k += token * k_stride;
  v += token * v_stride;
  k_cache += batch * s.k_batch + position * s.k_token;
  v_cache += batch * s.v_batch + position * s.v_token;
  for (long head = 0; head < kv_heads; ++head)
    for (long d = me; d < s.head_dim; d += 64) {
      k_cache[head * s.k_head + d] = k[head * s.head_dim + d];
      v_cache[head * s.v_head + d] = v[head * s.head_dim + d];
    }
}
KERNEL_64 append_f32(const float* k, const float* v, const int* filled, float* k_cache, float* v_cache, const AttentionShape* shape,
                     long k_stride, long v_stride, long capacity) {
  append(k, v, filled, k_cache, v_cache, *shape, k_stride, v_stride, capacity);
}
KERNEL_64 append_bf16(const bf16_bits* k, const bf16_bits* v, const int* filled, bf16_bits* k_cache, bf16_bits* v_cache,
                      const AttentionShape* shape, long k_stride, long v_stride, long capacity) {
  append(k, v, filled, k_cache, v_cache, *shape, k_stride, v_stride, capacity);
}

constexpr int decode_keys = 256;   // scores that a work-group holds at a time
constexpr int decode_size = 64;    // work-items
constexpr int decode_columns = 4;  // of the result a work-item holds: heads up to 256
syclexp::work_group_static<float[decode_keys]> decode_scores;

// One work-group per (sequence, new token, head): appends this token's key and value, then attends to the cache and to the new tokens
// before it, which it reads from where they came, so that no order between work-groups is needed.
template <class T>
inline void decode(const T* q, const T* k, const T* v, const int* filled, T* k_cache, T* v_cache, T* dst, const AttentionShape& s,
                   long k_stride, long v_stride, long capacity) {
  const auto item = item_1d();
  const auto work_group = item.get_group();
  const auto group = sub_group();
  const long lane = group.get_local_linear_id(), lanes = group.get_local_linear_range();
  const long me = item.get_local_id(0), row = item.get_group(0);
  const long head = row % s.heads, token = row / s.heads, batch = token / s.length, t = token % s.length;
  const long kv_head = head / s.group, before = filled[batch], keys = before + t + 1;
  float* const scores = &decode_scores[0];
  q += token * s.q_token + head * s.head_dim;
  k += batch * s.length * k_stride + kv_head * s.head_dim;
  v += batch * s.length * v_stride + kv_head * s.head_dim;
  k_cache += batch * s.k_batch + kv_head * s.k_head;
  v_cache += batch * s.v_batch + kv_head * s.v_head;
  const long slot = slot_of(s, filled, batch, before + t);
  if (head % s.group == 0 && slot < capacity)
    for (long d = me; d < s.head_dim; d += decode_size) {
      k_cache[slot * s.k_token + d] = k[t * k_stride + d];
      v_cache[slot * s.v_token + d] = v[t * v_stride + d];
    }
  float largest = lowest_score, total = 0;
  float result[decode_columns] = {};
  const long begin = first_seen(s, before + t), step = s.page > 0 ? lesser(s.page, long(decode_keys)) : decode_keys;
  for (long first = begin, end; first < keys; first = end) {
    end = lesser((first / step + 1) * step, keys);  // nothing crosses the end of a page or ring
    const long count = end - first, round = slot_of(s, filled, batch, first) - first;
    for (long i = group.get_group_linear_id(); i < count; i += group.get_group_linear_range()) {
      const long key = first + i;
      const T* const from = key < before ? k_cache + (key + round) * s.k_token : k + (key - before) * k_stride;
      float sum = 0;
      for (long d = lane; d < s.head_dim; d += lanes) sum += load(q, d) * load(from, d);
      sum = sum_over(group, sum);
      if (lane == 0) scores[i] = score_of(s, sum);
    }
    sycl::group_barrier(work_group);
    float local = minus_infinity;
    for (long i = me; i < count; i += decode_size) local = sycl::fmax(local, scores[i]);
    const float now = sycl::fmax(largest, sycl::reduce_over_group(work_group, local, sycl::maximum<float>()));
    const float factor = sycl::exp(largest - now);
    local = 0;
    for (long i = me; i < count; i += decode_size) local += scores[i] = sycl::exp(scores[i] - now);
    total = total * factor + sycl::reduce_over_group(work_group, local, sycl::plus<float>());
    largest = now;
    sycl::group_barrier(work_group);
#pragma unroll
    for (int c = 0; c < decode_columns; ++c) {
      const long d = me + c * decode_size;
      if (d >= s.head_dim) continue;
      float sum = result[c] * factor;
      const long cached = lesser(count, before > first ? before - first : 0L);
      for (long i = 0; i < cached; ++i) sum += scores[i] * load(v_cache, (first + i + round) * s.v_token + d);
      for (long i = cached; i < count; ++i) sum += scores[i] * load(v, (first + i - before) * v_stride + d);
      result[c] = sum;
    }
    sycl::group_barrier(work_group);
  }
  for (int c = 0; c < decode_columns; ++c)
    if (me + c * decode_size < s.head_dim) store(dst, row * s.head_dim + me + c * decode_size, result[c] / total);
}
KERNEL_64 decode_f32(const float* q, const float* k, const float* v, const int* filled, float* k_cache, float* v_cache, float* dst,
                     const AttentionShape* shape, long k_stride, long v_stride, long capacity) {
  decode(q, k, v, filled, k_cache, v_cache, dst, *shape, k_stride, v_stride, capacity);
}
KERNEL_64 decode_bf16(const bf16_bits* q, const bf16_bits* k, const bf16_bits* v, const int* filled, bf16_bits* k_cache, bf16_bits* v_cache,
                      bf16_bits* dst, const AttentionShape* shape, long k_stride, long v_stride, long capacity) {
  decode(q, k, v, filled, k_cache, v_cache, dst, *shape, k_stride, v_stride, capacity);
}

// Heads of a token turned: pairs (d, d + half) of the first `turned` of them, the rest as it is. Where parts lie by head in src ([head,
// part, d]), they lie one behind the other in dst ([part, head, d]). per: work-items of a head. back = -1: from dst to src, turned back.
template <class T>
inline void rotary(const T* src, T* dst, const float* cosines, const float* sines, const int* first, long count, const RotaryShape& r,
                   long src_stride, long dst_stride, long per, float back) {
  const long i = item_1d().get_global_linear_id();
  if (i >= count) return;
  const long d = i % per, head = i / per % r.heads, token = i / (per * r.heads);
  const long packed = head * r.head_dim, own = own_head(r, head) * r.head_dim;
  const T* const from = src + token * src_stride + (back > 0 ? own : packed);
  T* const to = dst + token * dst_stride + (back > 0 ? packed : own);
  if (head < r.turned && d < 2 * r.half) {
    if (d >= r.half) return;
    const long position = (first ? first[token / r.length] : 0) + token % r.length;
    const float cosine = cosines[position * r.half + d], sine = back * sines[position * r.half + d];
    const float a = load(from, d), b = load(from, d + r.half);
    store(to, d, a * cosine - b * sine);
    store(to, d + r.half, b * cosine + a * sine);
  } else {
    to[d] = from[d];
  }
}
KERNEL_64 rotary_f32(const float* src, float* dst, const float* cosines, const float* sines, const int* first, long count,
                     const RotaryShape* shape, long src_stride, long dst_stride, long per, float back) {
  rotary(src, dst, cosines, sines, first, count, *shape, src_stride, dst_stride, per, back);
}
KERNEL_64 rotary_bf16(const bf16_bits* src, bf16_bits* dst, const float* cosines, const float* sines, const int* first, long count,
                      const RotaryShape* shape, long src_stride, long dst_stride, long per, float back) {
  rotary(src, dst, cosines, sines, first, count, *shape, src_stride, dst_stride, per, back);
}
