// Causal attention in tiles of 64 queries × 64 keys: nothing of size length² is ever written. Forward keeps log-sums; backward recomputes
// the probabilities from them, once for the gradient of q and once for those of k and v, so that no sum depends on the order of execution.
// Columns: 16ths of the head that a work-item holds, rounded up.
#pragma once

#include "attention_scores.hpp"
#include "tile.hpp"

constexpr int tile_memory = tile_depth * tile_stride;
syclexp::work_group_static<float[2 * tile_memory + tile_side * tile_stride + 3 * tile_side]> attention_memory;

struct AttentionTiles {
  float *a, *b, *scores, *row_max, *row_sum, *row_scale;
  float* values;  // tile_depth × 16·Columns
  int y, x;
};

inline AttentionTiles attention_tiles(float* values) {
  AttentionTiles tiles;
  tiles.a = &attention_memory[0];
  tiles.b = tiles.a + tile_memory;
  tiles.scores = tiles.b + tile_memory;
  tiles.row_max = tiles.scores + tile_side * tile_stride;
  tiles.row_sum = tiles.row_max + tile_side;
  tiles.row_scale = tiles.row_sum + tile_side;
  tiles.values = values;
  tiles.y = item_2d().get_local_id(0);
  tiles.x = item_2d().get_local_id(1);
  return tiles;
}

// sums[i][j] = row (first_a + 4y+i) of a · row (first_b + x+16j) of b
template <class T>
inline void rows_by_rows(float (&sums)[tile_rows][tile_rows], const AttentionTiles& tiles, const T* a, long first_a, long rows_a,
                         long stride_a, const T* b, long first_b, long rows_b, long stride_b, long width) {
  for (int i = 0; i < tile_rows; ++i)
    for (int j = 0; j < tile_rows; ++j) sums[i][j] = 0;
  for (long first = 0; first < width; first += tile_depth) {
    tile_load(tiles.a, a, first_a, rows_a, stride_a, first, width, 1, tiles.y, tiles.x);
    tile_load(tiles.b, b, first_b, rows_b, stride_b, first, width, 1, tiles.y, tiles.x);
    group_barrier_local();
    tile_multiply<tile_rows>(sums, tiles.a, tile_stride, tiles.b, tile_stride, tiles.y, tiles.x);
    group_barrier_local();
  }
}

// sums[i][j] += sum over r < 64 of scores[r][4y+i] · source row (first + r), column x+16j
template <int Columns, class T>
inline void scores_by_rows(float (&sums)[tile_rows][Columns], const AttentionTiles& tiles, const T* source, long first, long rows,
                           long stride, long width) {
  for (int step = 0; step < tile_side && first + step < rows; step += tile_depth) {
    const long row = first + step + tiles.y;
#pragma unroll
    for (int j = 0; j < Columns; ++j) {
      const long column = tiles.x + tile_threads * j;
      const bool inside = row < rows && column < width;
      tiles.values[tiles.y * tile_threads * Columns + column] = inside ? load(source, row * stride + column) : 0.0f;
    }
    group_barrier_local();
    tile_multiply<Columns>(sums, tiles.scores + step * tile_stride, tile_stride, tiles.values, tile_threads * Columns, tiles.y, tiles.x);
    group_barrier_local();
  }
}

// One step of the softmax that runs along the keys: a work-item per row takes the tile's 64 scores (scores[key][row]) into its maximum and
// sum.
inline void take_scores(const AttentionTiles& tiles) {
  const int row = tiles.y * tile_threads + tiles.x;
  if (row < tile_side) {
    float largest = tiles.row_max[row];
    const float before = largest;
    for (int key = 0; key < tile_side; ++key) largest = sycl::fmax(largest, tiles.scores[key * tile_stride + row]);
    float sum = 0;
    for (int key = 0; key < tile_side; ++key) {
      const float e = sycl::exp(tiles.scores[key * tile_stride + row] - largest);
      tiles.scores[key * tile_stride + row] = e;
      sum += e;
    }
    const float factor = sycl::exp(before - largest);
    tiles.row_max[row] = largest;
    tiles.row_scale[row] = factor;
    tiles.row_sum[row] = tiles.row_sum[row] * factor + sum;
  }
}

// log_sums[(b·heads + h)·length + t] where not null. filled: tokens before the first query, per sequence; null: none.
template <int Columns, class T>
inline void attention_forward(const T* q, const T* k, const T* v, T* dst, float* log_sums, const AttentionShape& s, const int* filled,
                              float* values) {
  const AttentionTiles tiles = attention_tiles(values);
  const long head = item_2d().get_group(0) % s.heads, batch = item_2d().get_group(0) / s.heads;
  const long first_query = item_2d().get_group(1) * tile_side;
  const long before = filled ? filled[batch] : 0;
  const long keys = before + s.length;
  q += batch * s.q_batch + head * s.head_dim;
  k += batch * s.k_batch + head / s.group * s.k_head;
  v += batch * s.v_batch + head / s.group * s.v_head;
  if (tiles.y < tile_rows) {
    tiles.row_max[tiles.y * tile_threads + tiles.x] = lowest_score;
    tiles.row_sum[tiles.y * tile_threads + tiles.x] = 0;
  }
  float result[tile_rows][Columns] = {};
  const long last = before + lesser(first_query + tile_side, s.length);
  for (long first_key = first_seen(s, before + first_query) / tile_side * tile_side; first_key < last; first_key += tile_side) {
    const long round = slot_of(s, filled, batch, first_key) - first_key;  // a tile does not cross the end of a page or ring
    float sums[tile_rows][tile_rows];
    rows_by_rows(sums, tiles, q, first_query, s.length, s.q_token, k + round * s.k_token, first_key, keys, s.k_token, s.head_dim);
    for (int i = 0; i < tile_rows; ++i)
      for (int j = 0; j < tile_rows; ++j) {
        const int row = tiles.y * tile_rows + i, key = tiles.x + tile_threads * j;
        tiles.scores[key * tile_stride + row] =
            sees(s, before + first_query + row, first_key + key) ? score_of(s, sums[i][j]) : minus_infinity;
      }
    group_barrier_local();
    take_scores(tiles);
    group_barrier_local();
    for (int i = 0; i < tile_rows; ++i)
      for (int j = 0; j < Columns; ++j) result[i][j] *= tiles.row_scale[tiles.y * tile_rows + i];
    scores_by_rows<Columns>(result, tiles, v + round * s.v_token, first_key, keys, s.v_token, s.head_dim);
  }
  for (int i = 0; i < tile_rows; ++i) {
    const int row = tiles.y * tile_rows + i;
    const long query = first_query + row;
    if (query >= s.length) continue;
    const float sum = tiles.row_sum[row];
    for (int j = 0; j < Columns; ++j) {
      const long column = tiles.x + tile_threads * j;
      if (column < s.head_dim) store(dst, ((batch * s.length + query) * s.heads + head) * s.head_dim + column, result[i][j] / sum);
    }
    if (log_sums && tiles.x == 0) log_sums[(batch * s.heads + head) * s.length + query] = tiles.row_max[row] + sycl::log(sum);
  }
}

// The pointers of one query head.
template <class T>
struct AttentionHead {
  const T *q, *k, *v, *diff_dst;
  const float *log_sums, *deltas;
  long dst_token;
};

template <class T>
inline AttentionHead<T> attention_head(const T* q, const T* k, const T* v, const T* diff_dst, const float* log_sums, const float* deltas,
                                       const AttentionShape& s, long batch, long head) {
  const long width = s.heads * s.head_dim, first_row = (batch * s.heads + head) * s.length;
  return {q + batch * s.q_batch + head * s.head_dim,
          k + batch * s.k_batch + head / s.group * s.k_head,
          v + batch * s.v_batch + head / s.group * s.v_head,
          diff_dst + batch * s.length * width + head * s.head_dim,
          log_sums + first_row,
          deltas + first_row,
          width};
}

// Probabilities of a tile and the gradient of its scores: sums of the products, deltas[t] = diff_dst[t]·dst[t].
template <class T>
inline void probabilities_and_gradient(float (&p)[tile_rows][tile_rows], float (&ds)[tile_rows][tile_rows], const AttentionTiles& tiles,
                                       const AttentionHead<T>& h, const AttentionShape& s, long first_query, long first_key) {
  rows_by_rows(p, tiles, h.q, first_query, s.length, s.q_token, h.k, first_key, s.length, s.k_token, s.head_dim);
  rows_by_rows(ds, tiles, h.diff_dst, first_query, s.length, h.dst_token, h.v, first_key, s.length, s.v_token, s.head_dim);
  for (int i = 0; i < tile_rows; ++i)
    for (int j = 0; j < tile_rows; ++j) {
      const long query = first_query + tiles.y * tile_rows + i, key = first_key + tiles.x + tile_threads * j;
      const bool seen = sees(s, query, key) && query < s.length;
      const float score = score_of(s, p[i][j]);
      p[i][j] = seen ? sycl::exp(score - h.log_sums[query]) : 0.0f;
      ds[i][j] = seen ? score_slope(s, score) * p[i][j] * (ds[i][j] - h.deltas[query]) : 0.0f;
    }
}

template <int Columns, class T>
inline void attention_backward_q(const T* q, const T* k, const T* v, const T* diff_dst, const float* log_sums, const float* deltas,
                                 T* diff_q, const AttentionShape& s, float* values) {
  const AttentionTiles tiles = attention_tiles(values);
  const long head = item_2d().get_group(0) % s.heads, batch = item_2d().get_group(0) / s.heads;
  const long first_query = item_2d().get_group(1) * tile_side;
  const auto h = attention_head(q, k, v, diff_dst, log_sums, deltas, s, batch, head);
  float result[tile_rows][Columns] = {};
  for (long first_key = first_seen(s, first_query) / tile_side * tile_side; first_key <= first_query; first_key += tile_side) {
    float p[tile_rows][tile_rows], ds[tile_rows][tile_rows];
    probabilities_and_gradient(p, ds, tiles, h, s, first_query, first_key);
    for (int i = 0; i < tile_rows; ++i)
      for (int j = 0; j < tile_rows; ++j) tiles.scores[(tiles.x + tile_threads * j) * tile_stride + tiles.y * tile_rows + i] = ds[i][j];
    group_barrier_local();
    scores_by_rows<Columns>(result, tiles, h.k, first_key, s.length, s.k_token, s.head_dim);
  }
  for (int i = 0; i < tile_rows; ++i)
    for (int j = 0; j < Columns; ++j) {
      const long query = first_query + tiles.y * tile_rows + i, column = tiles.x + tile_threads * j;
      if (query < s.length && column < s.head_dim)
        store(diff_q, batch * s.q_batch + query * s.q_token + head * s.head_dim + column, result[i][j]);
    }
}

template <int Columns, class T>
inline void attention_backward_kv(const T* q, const T* k, const T* v, const T* diff_dst, const float* log_sums, const float* deltas,
                                  T* diff_k, T* diff_v, const AttentionShape& s, float* values) {
  const AttentionTiles tiles = attention_tiles(values);
  const long kv_heads = s.heads / s.group;
  const long kv_head = item_2d().get_group(0) % kv_heads, batch = item_2d().get_group(0) / kv_heads;
  const long first_key = item_2d().get_group(1) * tile_side;
  float dk[tile_rows][Columns] = {}, dv[tile_rows][Columns] = {};
  for (long head = kv_head * s.group; head < (kv_head + 1) * s.group; ++head) {
    const auto h = attention_head(q, k, v, diff_dst, log_sums, deltas, s, batch, head);
    const long end = lesser(s.length - first_key, s.window + tile_side) + first_key;  // behind the last query that sees one of the keys
    for (long first_query = first_key; first_query < end; first_query += tile_side) {
      float p[tile_rows][tile_rows], ds[tile_rows][tile_rows];
      probabilities_and_gradient(p, ds, tiles, h, s, first_query, first_key);
      for (int i = 0; i < tile_rows; ++i)
        for (int j = 0; j < tile_rows; ++j) tiles.scores[(tiles.y * tile_rows + i) * tile_stride + tiles.x + tile_threads * j] = p[i][j];
      group_barrier_local();
      scores_by_rows<Columns>(dv, tiles, h.diff_dst, first_query, s.length, h.dst_token, s.head_dim);
      for (int i = 0; i < tile_rows; ++i)
        for (int j = 0; j < tile_rows; ++j) tiles.scores[(tiles.y * tile_rows + i) * tile_stride + tiles.x + tile_threads * j] = ds[i][j];
      group_barrier_local();
      scores_by_rows<Columns>(dk, tiles, h.q, first_query, s.length, s.q_token, s.head_dim);
    }
  }
  for (int i = 0; i < tile_rows; ++i)
    for (int j = 0; j < Columns; ++j) {
      const long key = first_key + tiles.y * tile_rows + i, column = tiles.x + tile_threads * j;
      if (key >= s.length || column >= s.head_dim) continue;
      store(diff_k, batch * s.k_batch + key * s.k_token + kv_head * s.k_head + column, dk[i][j]);
      store(diff_v, batch * s.v_batch + key * s.v_token + kv_head * s.v_head + column, dv[i][j]);
    }
}

#define ATTENTION_KERNELS(TYPE, T, WIDTH, COLUMNS)                                                                                         \
  syclexp::work_group_static<float[tile_depth * WIDTH]> values_##WIDTH;                                                                    \
  KERNEL_TILE attention_forward_##WIDTH##_##TYPE(const T* q, const T* k, const T* v, T* dst, float* log_sums, const AttentionShape* shape, \
                                                 const int* filled) {                                                                      \
    attention_forward<COLUMNS>(q, k, v, dst, log_sums, *shape, filled, &values_##WIDTH[0]);                                                \
  }                                                                                                                                        \
  KERNEL_TILE attention_backward_q_##WIDTH##_##TYPE(const T* q, const T* k, const T* v, const T* diff_dst, const float* log_sums,          \
                                                    const float* deltas, T* diff_q, const AttentionShape* shape) {                         \
    attention_backward_q<COLUMNS>(q, k, v, diff_dst, log_sums, deltas, diff_q, *shape, &values_##WIDTH[0]);                                \
  }                                                                                                                                        \
  KERNEL_TILE attention_backward_kv_##WIDTH##_##TYPE(const T* q, const T* k, const T* v, const T* diff_dst, const float* log_sums,         \
                                                     const float* deltas, T* diff_k, T* diff_v, const AttentionShape* shape) {             \
    attention_backward_kv<COLUMNS>(q, k, v, diff_dst, log_sums, deltas, diff_k, diff_v, *shape, &values_##WIDTH[0]);                       \
  }
