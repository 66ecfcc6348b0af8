// The gradients of attention_tensor.hpp: probabilities again from the log-sums, once for the gradient of q and once for those of k and v,
// so that no sum depends on the order of execution. deltas[t] = diff_dst[t]·dst[t].
#pragma once

#include "attention_tensor.hpp"

// A scaled score becomes the probability; slope, the product of diff_dst and v, the gradient of the product of q and k.
ALL_IN_REGISTERS void score_gradient(float& score, float& slope, bool seen, float log_sum, float delta, float scale, float share_of_cap) {
  const float share = score * share_of_cap;
  score = seen ? sycl::exp(score - log_sum) : 0.0f;
  slope = seen ? scale * (1.0f - share * share) * score * (slope - delta) : 0.0f;
}
ALL_IN_REGISTERS float share_of_cap(const AttentionShape& s) { return s.cap > 0 ? 1.0f / s.cap : 0.0f; }

template <int Width>
ALL_IN_REGISTERS void tensor_backward_q(const bf16_bits* q, const bf16_bits* k, const bf16_bits* v, const bf16_bits* diff_dst,
                                        const float* log_sums, const float* deltas, bf16_bits* diff_q, const AttentionShape& s,
                                        AttentionMemory<Width>& memory) {
  const Worker me;
  const int window = window_of(s);
  const float share = share_of_cap(s);
  const long head = item_2d().get_group(0) % s.heads, batch = item_2d().get_group(0) / s.heads, width = s.heads * s.head_dim;
  const long first_query = item_2d().get_group(1) * kept_rows, own = batch * s.q_batch + head * s.head_dim;
  const unsigned kept_q = shared_address(&memory.kept[0]), kept_d = shared_address(&memory.kept[1]);
  const unsigned tile_k = shared_address(&memory.passing[0]), tile_v = shared_address(&memory.passing[1]);
  k += batch * s.k_batch + head / s.group * s.k_head;
  v += batch * s.v_batch + head / s.group * s.v_head;
  copy_rows<Width, kept_rows>(kept_q, q + own, first_query, s.length, s.q_token, s.head_dim, me.thread());
  copy_rows<Width, kept_rows>(kept_d, diff_dst + batch * s.length * width + head * s.head_dim, first_query, s.length, width, s.head_dim,
                              me.thread());
  float log_sum[2] = {}, delta[2] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half)
    if (const long query = first_query + me.row() + 8 * half; query < s.length) {
      const long at = (batch * s.heads + head) * s.length + query;
      log_sum[half] = log_sums[at], delta[half] = deltas[at];
    }
  Result<Width> result = {};
  const long last = lesser(first_query + kept_rows, s.length);
  for (long first_key = first_seen(s, first_query) / passing_rows * passing_rows; first_key < last; first_key += passing_rows) {
    copy_rows<Width, passing_rows>(tile_k, k, first_key, s.length, s.k_token, s.head_dim, me.thread());
    copy_rows<Width, passing_rows>(tile_v, v, first_key, s.length, s.v_token, s.head_dim, me.thread());
    wait_for_copies();
    Scores<passing_rows> scores, slopes;
    score_tiles<Width, passing_rows>(scores, kept_q, tile_k, me);
    score_tiles<Width, passing_rows>(slopes, kept_d, tile_v, me);
    scale_scores<passing_rows>(scores, s);
    const int own_key = static_cast<int>(first_query - first_key) + me.row(), queries = static_cast<int>(s.length - first_query) - me.row();
    for_scores<passing_rows>(me, [&](int j, int i, int half, int column) {
      const int last_seen = own_key + 8 * half;
      const bool seen = column <= last_seen && column > last_seen - window && 8 * half < queries;
      score_gradient(scores[j][i], slopes[j][i], seen, log_sum[half], delta[half], s.scale, share);
    });
    add_rows<Width, passing_rows>(result, slopes, tile_k, me);
    group_barrier_local();
  }
  const float scale[2] = {1, 1};
  store_rows<Width>(diff_q + own, result, scale, first_query, s.length, s.q_token, s.head_dim, me);
}

template <int Width>
ALL_IN_REGISTERS void tensor_backward_kv(const bf16_bits* q, const bf16_bits* k, const bf16_bits* v, const bf16_bits* diff_dst,
                                         const float* log_sums, const float* deltas, bf16_bits* diff_k, bf16_bits* diff_v,
                                         const AttentionShape& s, AttentionMemory<Width>& memory) {
  constexpr int passing = Width > 64 ? passing_rows / 2 : passing_rows;  // the two results take most registers
  const Worker me;
  const int window = window_of(s);
  const float share = share_of_cap(s);
  const long kv_heads = s.heads / s.group, kv_head = item_2d().get_group(0) % kv_heads, batch = item_2d().get_group(0) / kv_heads;
  const long first_key = item_2d().get_group(1) * kept_rows, width = s.heads * s.head_dim;
  const long own_k = batch * s.k_batch + kv_head * s.k_head, own_v = batch * s.v_batch + kv_head * s.v_head;
  const unsigned kept_k = shared_address(&memory.kept[0]), kept_v = shared_address(&memory.kept[1]);
  const unsigned tile_q = shared_address(&memory.passing[0]), tile_d = shared_address(&memory.passing[1]);
  copy_rows<Width, kept_rows>(kept_k, k + own_k, first_key, s.length, s.k_token, s.head_dim, me.thread());
  copy_rows<Width, kept_rows>(kept_v, v + own_v, first_key, s.length, s.v_token, s.head_dim, me.thread());
  Result<Width> dk = {}, dv = {};
  for (long head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
    const float *const sums = log_sums + (batch * s.heads + head) * s.length, *const products =
                                                                                  deltas + (batch * s.heads + head) * s.length;
    const long end = lesser(s.length - first_key, s.window + kept_rows) + first_key;  // behind the last query that sees one of the keys
    for (long first_query = first_key; first_query < end; first_query += passing) {
      copy_rows<Width, passing>(tile_q, q + batch * s.q_batch + head * s.head_dim, first_query, s.length, s.q_token, s.head_dim,
                                me.thread());
      copy_rows<Width, passing>(tile_d, diff_dst + batch * s.length * width + head * s.head_dim, first_query, s.length, width, s.head_dim,
                                me.thread());
      wait_for_copies();
      Scores<passing> scores, slopes;
      score_tiles<Width, passing>(scores, kept_k, tile_q, me);
      score_tiles<Width, passing>(slopes, kept_v, tile_d, me);
      scale_scores<passing>(scores, s);
      const int own_query = static_cast<int>(first_key - first_query) + me.row(), queries = static_cast<int>(s.length - first_query);
      for_scores<passing>(me, [&](int j, int i, int half, int column) {
        const int first_seeing = own_query + 8 * half;
        const bool seen = column >= first_seeing && column - window < first_seeing && column < queries;
        const float log_sum = column < queries ? sums[first_query + column] : 0.0f;
        const float delta = column < queries ? products[first_query + column] : 0.0f;
        score_gradient(scores[j][i], slopes[j][i], seen, log_sum, delta, s.scale, share);
      });
      add_rows<Width, passing>(dv, scores, tile_d, me);
      add_rows<Width, passing>(dk, slopes, tile_q, me);
      group_barrier_local();
    }
  }
  const float scale[2] = {1, 1};
  store_rows<Width>(diff_k + own_k, dk, scale, first_key, s.length, s.k_token, s.head_dim, me);
  store_rows<Width>(diff_v + own_v, dv, scale, first_key, s.length, s.v_token, s.head_dim, me);
}

#define KERNEL_ATTENTION                                                      \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<2>)) \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::work_group_size<4, 32>)) void
#define TENSOR_ATTENTION(WIDTH)                                                                                                 \
  syclexp::work_group_static<AttentionMemory<WIDTH>> memory;                                                                    \
  KERNEL_ATTENTION attention_tensor_forward_##WIDTH(const bf16_bits* q, const bf16_bits* k, const bf16_bits* v, bf16_bits* dst, \
                                                    float* log_sums, const AttentionShape* shape, const int* filled) {          \
    tensor_forward<WIDTH>(q, k, v, dst, log_sums, *shape, filled, memory);                                                      \
  }                                                                                                                             \
  KERNEL_ATTENTION attention_tensor_backward_q_##WIDTH(const bf16_bits* q, const bf16_bits* k, const bf16_bits* v,              \
                                                       const bf16_bits* diff_dst, const float* log_sums, const float* deltas,   \
                                                       bf16_bits* diff_q, const AttentionShape* shape) {                        \
    tensor_backward_q<WIDTH>(q, k, v, diff_dst, log_sums, deltas, diff_q, *shape, memory);                                      \
  }                                                                                                                             \
  KERNEL_ATTENTION attention_tensor_backward_kv_##WIDTH(const bf16_bits* q, const bf16_bits* k, const bf16_bits* v,             \
                                                        const bf16_bits* diff_dst, const float* log_sums, const float* deltas,  \
                                                        bf16_bits* diff_k, bf16_bits* diff_v, const AttentionShape* shape) {    \
    tensor_backward_kv<WIDTH>(q, k, v, diff_dst, log_sums, deltas, diff_k, diff_v, *shape, memory);                             \
  }
