// Causal attention for CPUs: a query per lane, no barriers. A work-group is one vector of 16 lanes; each holds two queries. Scores, softmax
// and results of a query stay in its lane; keys and values are read as single numbers that all lanes share, straight from where they lie.
#include "attention_scores.hpp"
#include "math.hpp"
#include "values.hpp"

#define KERNEL_LANES                                                          \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::work_group_size<lanes>))    \
          SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::sub_group_size<lanes>)) void

constexpr int lanes = attention_lanes, each = attention_block / attention_lanes;
constexpr int block = attention_block, step = attention_step;
constexpr int key_tile = 64;                          // keys whose scores are held at a time
constexpr int keys_at_once = 4, columns_at_once = 4;  // of the gradients of keys and values

// Columns: [row][query of the block], seen from this lane.
syclexp::work_group_static<float[attention_widest_lanes * block]> first_columns, second_columns, result_columns;
syclexp::work_group_static<float[key_tile * block]> score_columns;

inline long lane() { return item_1d().get_local_id(0); }

// Queries first + lane + 16·j of a tensor [tokens, stride] as columns; zeros behind the last.
inline void read_columns(float* columns, const float* source, long first, long length, long stride, long width) {
  for (int j = 0; j < each; ++j) {
    const long query = first + lane() + lanes * j;
    const bool inside = query < length;
    const float* const row = source + (inside ? query : 0) * stride;
    for (long d = 0; d < width; ++d) columns[d * block + lanes * j] = inside ? row[d] : 0.0f;
  }
}

inline void write_columns(const float* columns, float* target, long first, long length, long stride, long width,
                          const float (&factors)[each]) {
  for (int j = 0; j < each; ++j) {
    const long query = first + lane() + lanes * j;
    if (query >= length) continue;
    float* const row = target + query * stride;
    for (long d = 0; d < width; ++d) row[d] = factors[j] * columns[d * block + lanes * j];
  }
}

// sums[i][j] = row i · column j
template <int Rows>
inline void rows_by_columns(float (&sums)[Rows][each], const float* rows, long stride, const float* columns, long width) {
#pragma unroll
  for (int i = 0; i < Rows; ++i)
#pragma unroll
    for (int j = 0; j < each; ++j) sums[i][j] = 0;
  for (long d = 0; d < width; ++d) {
    float column[each];
#pragma unroll
    for (int j = 0; j < each; ++j) column[j] = columns[d * block + lanes * j];
#pragma unroll
    for (int i = 0; i < Rows; ++i) {
      const float value = rows[i * stride + d];
#pragma unroll
      for (int j = 0; j < each; ++j) sums[i][j] += value * column[j];
    }
  }
}

// result[d][j] = factors[j] · result[d][j] + sum over i < count of rows[i][d] · columns[i][j]
inline void add_rows(float* result, const float (&factors)[each], const float* rows, long stride, const float* columns, long column_stride,
                     long count, long width) {
  for (long d = 0; d < width; d += step) {
    float sums[step][each];
#pragma unroll
    for (int k = 0; k < step; ++k)
#pragma unroll
      for (int j = 0; j < each; ++j) sums[k][j] = factors[j] * result[(d + k) * block + lanes * j];
    for (long i = 0; i < count; ++i) {
      float column[each];
#pragma unroll
      for (int j = 0; j < each; ++j) column[j] = columns[i * column_stride + lanes * j];
#pragma unroll
      for (int k = 0; k < step; ++k) {
        const float value = rows[i * stride + d + k];
#pragma unroll
        for (int j = 0; j < each; ++j) sums[k][j] += value * column[j];
      }
    }
#pragma unroll
    for (int k = 0; k < step; ++k)
#pragma unroll
      for (int j = 0; j < each; ++j) result[(d + k) * block + lanes * j] = sums[k][j];
  }
}

inline void clear_columns(float* columns, long width) {
  for (long d = 0; d < width; ++d)
    for (int j = 0; j < each; ++j) columns[d * block + lanes * j] = 0;
}

// body(key, count as a constant) for the keys [begin, end): `step` at a time, then one by one.
template <int Count>
struct Keys {
  static constexpr int count = Count;
};
template <class Body>
inline void for_keys(long begin, long end, Body body) {
  long key = begin;
  for (; key + step <= end; key += step) body(key, Keys<step>());
  for (; key < end; ++key) body(key, Keys<1>());
}

// Scores of the keys [begin, end) into score_columns, minus infinity where a query does not see a key; takes them into `largest`.
inline void score_tile(float* scores, float (&largest)[each], const float* queries, const float* k, const AttentionShape& s, long begin,
                       long end, long first_position) {
  for_keys(begin, end, [&](long key, auto keys) {
    float sums[keys.count][each];
    rows_by_columns(sums, k + key * s.k_token, s.k_token, queries, s.head_dim);
#pragma unroll
    for (int i = 0; i < keys.count; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const float score = sees(s, first_position + lane() + lanes * j, key + i) ? score_of(s, sums[i][j]) : minus_infinity;
        largest[j] = sycl::fmax(largest[j], score);
        scores[(key - begin + i) * block + lanes * j] = score;
      }
  });
}

// A work-group per (sequence, head, block of queries). filled: tokens before the first query, per sequence; null: none.
KERNEL_LANES attention_forward_lanes(const float* q, const float* k, const float* v, float* dst, float* log_sums,
                                     const AttentionShape* shape, const int* filled) {
  const AttentionShape& s = *shape;
  const long blocks = (s.length + block - 1) / block;
  const long group = item_1d().get_group(0), row = group / blocks, first = group % blocks * block;
  const long head = row % s.heads, batch = row / s.heads, before = filled ? filled[batch] : 0;
  q += batch * s.q_batch + head * s.head_dim;
  k += batch * s.k_batch + head / s.group * s.k_head;
  v += batch * s.v_batch + head / s.group * s.v_head;
  float *const queries = &first_columns[0] + lane(), *const result = &result_columns[0] + lane(),
               *const scores = &score_columns[0] + lane();
  read_columns(queries, q, first, s.length, s.q_token, s.head_dim);
  clear_columns(result, s.head_dim);
  float largest[each], sums[each];
#pragma unroll
  for (int j = 0; j < each; ++j) largest[j] = lowest_score, sums[j] = 0;
  const long last = before + lesser(first + block, s.length);
  for (long begin = first_seen(s, before + first) / key_tile * key_tile; begin < last; begin += key_tile) {
    const long end = lesser(begin + key_tile, last),
               round = slot_of(s, filled, batch, begin) - begin;  // a tile does not cross the end of a page
    float now[each], factors[each];
#pragma unroll
    for (int j = 0; j < each; ++j) now[j] = largest[j];
    score_tile(scores, now, queries, k + round * s.k_token, s, begin, end, before + first);
#pragma unroll
    for (int j = 0; j < each; ++j) {
      factors[j] = fast_exp(largest[j] - now[j]);
      largest[j] = now[j];
      sums[j] *= factors[j];
    }
    for (long i = 0; i < end - begin; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const float p = fast_exp(scores[i * block + lanes * j] - largest[j]);
        scores[i * block + lanes * j] = p;
        sums[j] += p;
      }
    add_rows(result, factors, v + (begin + round) * s.v_token, s.v_token, scores, block, end - begin, s.head_dim);
  }
  float inverse[each];
#pragma unroll
  for (int j = 0; j < each; ++j) inverse[j] = 1.0f / sums[j];
  const long width = s.heads * s.head_dim;
  write_columns(result, dst + batch * s.length * width + head * s.head_dim, first, s.length, width, s.head_dim, inverse);
  for (int j = 0; log_sums && j < each; ++j)
    if (first + lane() + lanes * j < s.length) log_sums[row * s.length + first + lane() + lanes * j] = largest[j] + sycl::log(sums[j]);
}

// Two kernels make the gradients of a slice: of some (sequence, key/value head) pairs from first_pair on, for the queries [first_query,
// first_query + queries). The first makes that of q, and leaves probabilities and the gradients of scores as [pair, head of the group, key,
// query]; the second sums them into those of k and v.
KERNEL_LANES attention_backward_q_lanes(const float* q, const float* k, const float* v, const float* dst, const float* diff_dst,
                                        const float* log_sums, float* diff_q, float* probabilities, float* diff_scores,
                                        const AttentionShape* shape, long first_pair, long first_query, long queries) {
  const AttentionShape& s = *shape;
  const long blocks = (queries + block - 1) / block, width = s.heads * s.head_dim, kv_heads = s.heads / s.group;
  const long group = item_1d().get_group(0), square = group / blocks, first = first_query + group % blocks * block;
  const long pair = first_pair + square / s.group, batch = pair / kv_heads, head = pair % kv_heads * s.group + square % s.group;
  q += batch * s.q_batch + head * s.head_dim;
  k += batch * s.k_batch + head / s.group * s.k_head;
  v += batch * s.v_batch + head / s.group * s.v_head;
  const long rows = batch * s.length * width + head * s.head_dim;
  const long column_stride = blocks * block, at = square * s.length * column_stride + first - first_query + lane();
  probabilities += at;
  diff_scores += at;
  float *const query_columns = &first_columns[0] + lane(), *const diff_columns = &second_columns[0] + lane(),
               *const result = &result_columns[0] + lane();
  read_columns(query_columns, q, first, s.length, s.q_token, s.head_dim);
  read_columns(diff_columns, diff_dst + rows, first, s.length, width, s.head_dim);
  read_columns(result, dst + rows, first, s.length, width, s.head_dim);
  float deltas[each], log_sum[each], ones[each];
#pragma unroll
  for (int j = 0; j < each; ++j) {
    const long query = first + lane() + lanes * j;
    log_sum[j] = query < s.length ? log_sums[(batch * s.heads + head) * s.length + query] : 0.0f;
    deltas[j] = 0;
    ones[j] = 1;
    for (long d = 0; d < s.head_dim; ++d) deltas[j] += diff_columns[d * block + lanes * j] * result[d * block + lanes * j];
  }
  clear_columns(result, s.head_dim);
  const long last = lesser(first + block, s.length);
  const long from = first_seen(s, first) / keys_at_once * keys_at_once;
  for_keys(from, last, [&](long key, auto keys) {
    float p[keys.count][each], ds[keys.count][each];
    rows_by_columns(p, k + key * s.k_token, s.k_token, query_columns, s.head_dim);
    rows_by_columns(ds, v + key * s.v_token, s.v_token, diff_columns, s.head_dim);
#pragma unroll
    for (int i = 0; i < keys.count; ++i)
#pragma unroll
      for (int j = 0; j < each; ++j) {
        const long query = first + lane() + lanes * j;
        const bool seen = sees(s, query, key + i) && query < s.length;
        const float score = score_of(s, p[i][j]), probability = seen ? fast_exp(score - log_sum[j]) : 0.0f;
        probabilities[(key + i) * column_stride + lanes * j] = probability;
        diff_scores[(key + i) * column_stride + lanes * j] = score_slope(s, score) * probability * (ds[i][j] - deltas[j]);
      }
  });
  add_rows(result, ones, k + from * s.k_token, s.k_token, diff_scores + from * column_stride, column_stride, last - from, s.head_dim);
  write_columns(result, diff_q + batch * s.q_batch + head * s.head_dim, first, s.length, s.q_token, s.head_dim, ones);
}

// target[key][d] (+)= sum over heads of the group and queries of squares[head][key][query] · source[query][head][d]; here a lane has
// columns d.
inline void sum_over_queries(const float* squares, long column_stride, const float* source, long stride, float* target, long target_stride,
                             const AttentionShape& s, long key, long first_query, long queries, bool add) {
  const long begin = greater(key, first_query), last = lesser(first_query + queries, s.length);
  const long end = lesser(last - key, s.window + keys_at_once - 1) + key;  // behind the last query that sees one of the keys
  for (long first = 0; first < s.head_dim; first += lanes * columns_at_once) {
    float sums[keys_at_once][columns_at_once];
#pragma unroll
    for (int i = 0; i < keys_at_once; ++i)
#pragma unroll
      for (int j = 0; j < columns_at_once; ++j) sums[i][j] = 0;
    bool inside[columns_at_once];
#pragma unroll
    for (int j = 0; j < columns_at_once; ++j) inside[j] = first + lane() + lanes * j < s.head_dim;
    for (long head = 0; head < s.group; ++head) {
      const float* const square = squares + (head * s.length + key) * column_stride - first_query;
      const float* const columns = source + head * s.head_dim + first + lane();
      for (long query = begin; query < end; ++query) {
        float column[columns_at_once];
#pragma unroll
        for (int j = 0; j < columns_at_once; ++j) column[j] = inside[j] ? columns[query * stride + lanes * j] : 0.0f;
#pragma unroll
        for (int i = 0; i < keys_at_once; ++i) {
          const float value = square[i * column_stride + query];
#pragma unroll
          for (int j = 0; j < columns_at_once; ++j) sums[i][j] += value * column[j];
        }
      }
    }
    for (int i = 0; i < keys_at_once && key + i < s.length; ++i)
#pragma unroll
      for (int j = 0; j < columns_at_once; ++j)
        if (inside[j]) {
          float* const to = target + (key + i) * target_stride + first + lane() + lanes * j;
          *to = add ? *to + sums[i][j] : sums[i][j];
        }
  }
}

// A work-group per (pair, keys_at_once keys). add: to what earlier slices of queries gave.
KERNEL_LANES attention_backward_kv_lanes(const float* q, const float* diff_dst, const float* probabilities, const float* diff_scores,
                                         float* diff_k, float* diff_v, const AttentionShape* shape, long first_pair, long first_query,
                                         long queries, long keys, int add) {
  const AttentionShape& s = *shape;
  const long key_blocks = (keys + keys_at_once - 1) / keys_at_once, width = s.heads * s.head_dim, kv_heads = s.heads / s.group;
  const long group = item_1d().get_group(0), square = group / key_blocks * s.group, key = group % key_blocks * keys_at_once;
  const long pair = first_pair + group / key_blocks, batch = pair / kv_heads, kv_head = pair % kv_heads, head = kv_head * s.group;
  const long column_stride = (queries + block - 1) / block * block, at = square * s.length * column_stride;
  sum_over_queries(probabilities + at, column_stride, diff_dst + batch * s.length * width + head * s.head_dim, width,
                   diff_v + batch * s.v_batch + kv_head * s.v_head, s.v_token, s, key, first_query, queries, add);
  sum_over_queries(diff_scores + at, column_stride, q + batch * s.q_batch + head * s.head_dim, s.q_token,
                   diff_k + batch * s.k_batch + kv_head * s.k_head, s.k_token, s, key, first_query, queries, add);
}
