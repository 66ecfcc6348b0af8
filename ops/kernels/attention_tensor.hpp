// Causal attention on tensor cores (sm_80 and later) for bf16 heads up to Width wide: the arithmetic of attention_tiles.hpp, and nothing of
// size length² is ever written here either.
//
// A work-group keeps 64 rows: queries, or keys where their gradients are summed. A sub-group has 16 of them and meets all others in tiles
// of `passing` rows. Scores stay in its registers, which hold them as a product's result and then, rounded to bf16, as the left operand of
// the next product. Tiles lie in shared memory with the 16-byte chunks of a row permuted, so that no access meets another in a bank.
#pragma once

#include "attention_scores.hpp"
#include "tensor_core.hpp"
#include "tile.hpp"  // group_barrier_local

constexpr int kept_rows = 64, passing_rows = 32, warp_rows = 16, attention_threads = 128;

template <int Width>
struct alignas(128) AttentionMemory {
  unsigned char kept[2][kept_rows * Width * 2], passing[2][passing_rows * Width * 2];
};

struct Worker {
  int warp, lane;
  Worker() : warp(item_2d().get_local_id(0)), lane(item_2d().get_local_id(1)) {}
  int thread() const { return warp * 32 + lane; }
  int row() const { return warp * warp_rows + lane / 4; }  // of its first and second sums; that of the others is 8 further
};

template <int Width>
ALL_IN_REGISTERS int place_of(int row, int chunk) {
  return row * Width * 2 + (chunk ^ (row & 7)) * 16;
}

// `Count` rows of a matrix from first on, zeros beyond `rows` and beyond `width`.
template <int Width, int Count>
ALL_IN_REGISTERS void copy_rows(unsigned to, const bf16_bits* source, long first, long rows, long stride, long width, int thread) {
  constexpr int chunks = Width / 8;
#pragma unroll
  for (int i = 0; i < Count * chunks / attention_threads; ++i) {
    const int at = thread + i * attention_threads, row = at / chunks, chunk = at % chunks;
    const bool inside = first + row < rows && chunk * 8 < width;
    copy_chunk(to + place_of<Width>(row, chunk), inside ? source + (first + row) * stride + chunk * 8 : source, inside ? 16 : 0);
  }
}

template <int Rows>
using Scores = float[Rows / 8][4];
template <int Width>
using Result = float[Width / 8][4];

// scores = the sub-group's rows of `kept` · rows of `passing`
template <int Width, int Rows>
ALL_IN_REGISTERS void score_tiles(Scores<Rows>& scores, unsigned kept, unsigned passing, const Worker& me) {
  const int matrix = me.lane / 8;
#pragma unroll
  for (float (&one)[4] : scores) one[0] = one[1] = one[2] = one[3] = 0;
#pragma unroll
  for (int step = 0; step < Width / 16; ++step) {
    unsigned a[4];
    load_matrices<false>(a, kept + place_of<Width>(me.warp * warp_rows + me.lane % 16, 2 * step + me.lane / 16));
#pragma unroll
    for (int j = 0; j < Rows / 16; ++j) {
      unsigned b[4];
      load_matrices<false>(b, passing + place_of<Width>(j * 16 + me.lane % 8 + (matrix >> 1) * 8, 2 * step + (matrix & 1)));
      tensor_multiply(scores[2 * j], a, b);
      tensor_multiply(scores[2 * j + 1], a, b + 2);
    }
  }
}

// result += weights · rows of `passing`
template <int Width, int Rows>
ALL_IN_REGISTERS void add_rows(Result<Width>& result, const Scores<Rows>& weights, unsigned passing, const Worker& me) {
  const int matrix = me.lane / 8;
#pragma unroll
  for (int step = 0; step < Rows / 16; ++step) {
    unsigned a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = pack_bf16(weights[2 * step + i / 2][i % 2 * 2], weights[2 * step + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int j = 0; j < Width / 16; ++j) {
      unsigned b[4];
      load_matrices<true>(b, passing + place_of<Width>(step * 16 + me.lane % 8 + (matrix & 1) * 8, 2 * j + (matrix >> 1)));
      tensor_multiply(result[2 * j], a, b);
      tensor_multiply(result[2 * j + 1], a, b + 2);
    }
  }
}

// body(j, i, half, column) for the lane's scores[j][i]: in its first row or the one 8 further, in this column.
template <int Rows, class Body>
ALL_IN_REGISTERS void for_scores(const Worker& me, const Body& body) {
#pragma unroll
  for (int j = 0; j < Rows / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) body(j, i, i / 2, j * 8 + me.lane % 4 * 2 + i % 2);
}

// score_of(), with one question for all of them.
template <int Rows>
ALL_IN_REGISTERS void scale_scores(Scores<Rows>& scores, const AttentionShape& s) {
#pragma unroll
  for (float (&some)[4] : scores)
#pragma unroll
    for (float& score : some) score *= s.scale;
  if (s.cap <= 0) return;
#pragma unroll
  for (float (&some)[4] : scores)
#pragma unroll
    for (float& score : some) score = s.cap * sycl::tanh(score / s.cap);
}

// Positions within tiles are numbers of 32 bits.
ALL_IN_REGISTERS int window_of(const AttentionShape& s) { return static_cast<int>(lesser(s.window, 1 << 30)); }

// Over the four lanes that share a row.
template <class Join>
ALL_IN_REGISTERS float join_row(float value, const Join& join) {
  const auto lanes = syclext::this_work_item::get_sub_group();
  value = join(value, sycl::permute_group_by_xor(lanes, value, 1));
  return join(value, sycl::permute_group_by_xor(lanes, value, 2));
}

// to[row · stride + column] = result · scale, of 64 rows from `first` on.
template <int Width>
ALL_IN_REGISTERS void store_rows(bf16_bits* to, const Result<Width>& result, const float (&scale)[2], long first, long rows, long stride,
                                 long width, const Worker& me) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const long row = first + me.row() + 8 * half;
    if (row >= rows) continue;
    bf16_bits* const out = to + row * stride + me.lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < Width / 8; ++j)
      if (j * 8 < width)
        *reinterpret_cast<unsigned*>(out + j * 8) = pack_bf16(result[j][2 * half] * scale[half], result[j][2 * half + 1] * scale[half]);
  }
}

ALL_IN_REGISTERS void wait_for_copies() {
  commit_copies();
  finish_copies<0>();
  group_barrier_local();
}

// log_sums[(b·heads + h)·length + t] where not null. filled: tokens before the first query, per sequence; null: none.
template <int Width>
ALL_IN_REGISTERS void tensor_forward(const bf16_bits* q, const bf16_bits* k, const bf16_bits* v, bf16_bits* dst, float* log_sums,
                                     const AttentionShape& s, const int* filled, AttentionMemory<Width>& memory) {
  const Worker me;
  const int window = window_of(s);
  const long head = item_2d().get_group(0) % s.heads, batch = item_2d().get_group(0) / s.heads;
  const long first_query = item_2d().get_group(1) * kept_rows, before = filled ? filled[batch] : 0, keys = before + s.length;
  const unsigned kept = shared_address(&memory.kept[0]), tile_k = shared_address(&memory.passing[0]),
                 tile_v = shared_address(&memory.passing[1]);
  k += batch * s.k_batch + head / s.group * s.k_head;
  v += batch * s.v_batch + head / s.group * s.v_head;
  copy_rows<Width, kept_rows>(kept, q + batch * s.q_batch + head * s.head_dim, first_query, s.length, s.q_token, s.head_dim, me.thread());

  Result<Width> result = {};
  float largest[2] = {lowest_score, lowest_score}, sum[2] = {};
  const long last = before + lesser(first_query + kept_rows, s.length);
  for (long first_key = first_seen(s, before + first_query) / passing_rows * passing_rows; first_key < last; first_key += passing_rows) {
    const long round = slot_of(s, filled, batch, first_key) - first_key;  // a tile does not cross the end of a page or ring
    copy_rows<Width, passing_rows>(tile_k, k + round * s.k_token, first_key, keys, s.k_token, s.head_dim, me.thread());
    copy_rows<Width, passing_rows>(tile_v, v + round * s.v_token, first_key, keys, s.v_token, s.head_dim, me.thread());
    wait_for_copies();
    Scores<passing_rows> scores;
    score_tiles<Width, passing_rows>(scores, kept, tile_k, me);
    scale_scores<passing_rows>(scores, s);
    const int last_seen = static_cast<int>(before + first_query - first_key) + me.row();  // of this tile by the lane's first row
    float row_largest[2] = {largest[0], largest[1]};
    for_scores<passing_rows>(me, [&](int j, int i, int half, int column) {
      const int last_of_row = last_seen + 8 * half;
      scores[j][i] = column <= last_of_row && column > last_of_row - window ? scores[j][i] : minus_infinity;
      row_largest[half] = sycl::fmax(row_largest[half], scores[j][i]);
    });
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      row_largest[half] = join_row(row_largest[half], [](float a, float b) { return sycl::fmax(a, b); });
      const float factor = sycl::exp(largest[half] - row_largest[half]);
      largest[half] = row_largest[half];
      sum[half] *= factor;
#pragma unroll
      for (float (&one)[4] : result) one[2 * half] *= factor, one[2 * half + 1] *= factor;
    }
    for_scores<passing_rows>(me, [&](int j, int i, int half, int) {
      scores[j][i] = sycl::exp(scores[j][i] - largest[half]);
      sum[half] += scores[j][i];
    });
    add_rows<Width, passing_rows>(result, scores, tile_v, me);
    group_barrier_local();  // before the next tile is copied over this one
  }
  float scale[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    sum[half] = join_row(sum[half], [](float a, float b) { return a + b; });
    scale[half] = 1.0f / sum[half];
    const long query = first_query + me.row() + 8 * half;
    if (log_sums && query < s.length && me.lane % 4 == 0)
      log_sums[(batch * s.heads + head) * s.length + query] = largest[half] + sycl::log(sum[half]);
  }
  store_rows<Width>(dst + (batch * s.length * s.heads + head) * s.head_dim, result, scale, first_query, s.length, s.heads * s.head_dim,
                    s.head_dim, me);
}
