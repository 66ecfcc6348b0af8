// How attention walks over a head: blocks of queries meet blocks of keys, so that what a thread holds does not grow with the length and
// stays in its second cache. Within a block, 12 queries at a time go through all products while their scores are in the first cache.
#include <ppengine/ops/cpu/attention_heads.hpp>

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <ppengine/ops/cpu/avx512_attention.hpp>
#include <ppengine/ops/detail/divide_up.hpp>

namespace ppengine::ops::cpu {
namespace {

using avx512::panel_width;
using avx512::tile_height;

constexpr int64_t lanes = 16;
// Of queries and of keys. Whole tiles, so that the tiles of keys and of queries have the same borders, and whole registers: only on the
// diagonal are there keys in a register that are not seen.
constexpr int64_t block = 192;
static_assert(block % tile_height == 0 && block % panel_width == 0);
constexpr int64_t score_row = block + lanes;  // no power of two: columns of scores are read too

constexpr int64_t up(int64_t count, int64_t by) { return divide_up(count, by) * by; }

// Memory of the thread, kept for its life.
class Scratch {
 public:
  explicit Scratch(int64_t floats) {
    struct alignas(64) Line {
      float values[lanes];
    };
    thread_local std::vector<Line> lines;
    const auto wanted = static_cast<size_t>(divide_up(floats, lanes));
    if (lines.size() < wanted) lines.resize(wanted);
    next_ = lines.data()->values;
  }
  float* take(int64_t floats) { return std::exchange(next_, next_ + up(floats, lanes)); }

 private:
  float* next_;
};

int64_t panels_floats(int64_t width) { return block * up(width, panel_width); }

// Some tokens of one head, [tokens, width], as panels of a product over tokens.
void pack(const float* tokens, int64_t row, int64_t count, int64_t width, float* panels) {
  for (int64_t n = 0; n < width; n += panel_width)
    avx512::pack_panel(tokens + n, row, false, std::min(panel_width, width - n), count, panels + n * block);
}

// The same for a product over the width, which has a column per token.
void pack_transposed(const float* tokens, int64_t row, int64_t count, int64_t width, float* panels) {
  for (int64_t n = 0; n < count; n += panel_width)
    avx512::pack_panel(tokens + n * row, row, true, std::min(panel_width, count - n), width, panels + n * width);
}

// 12 queries from `query` on, or what is left of them, and those of the `keys` keys from `first_key` on that they see.
struct Tile {
  Tile(const AttentionSpec& spec, int64_t query, int64_t first_key, int64_t keys)
      : height(std::min(tile_height, spec.length - query)),
        seen(std::min(keys, query + height - first_key)),
        scores{height, std::min(keys, query + 1 - first_key), keys, score_row, spec.scale} {}
  int64_t height, seen;  // by the last query
  avx512::Scores scores;
};

// scores[height, seen] = rows · keys, whole registers of them.
void multiply_by_keys(const AttentionSpec& spec, const Tile& tile, const float* rows, int64_t row, const float* transposed, float* scores) {
  avx512::multiply({tile.height, up(tile.seen, lanes), spec.head_dim, rows, row, false, transposed, spec.head_dim * panel_width, scores,
                    score_row, false, nullptr});
}

// c[height, head_dim] (+)= scores[height, seen] · packed
void multiply_scores(const AttentionSpec& spec, const Tile& tile, const float* scores, const float* packed, float* c, int64_t row, bool add,
                     const float* factors) {
  avx512::multiply({tile.height, spec.head_dim, tile.seen, scores, score_row, false, packed, block * panel_width, c, row, add, factors});
}

struct Head {
  const float *q, *k, *v;
  float *dst, *saved;
};

void forward_head(const AttentionSpec& spec, const Head& head) {
  const int64_t width = spec.head_dim, dst_row = spec.heads * width;
  Scratch scratch(2 * panels_floats(width) + tile_height * score_row);
  float *const keys = scratch.take(panels_floats(width)), *const values = scratch.take(panels_floats(width));
  float* const scores = scratch.take(tile_height * score_row);
  float largest[block], sums[block], factors[tile_height];
  for (int64_t begin = 0; begin < spec.length; begin += block) {
    std::fill_n(largest, block, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, block, 0.0f);
    const int64_t end = std::min(begin + block, spec.length);
    for (int64_t first_key = 0; first_key < end; first_key += block) {
      const int64_t count = std::min(block, spec.length - first_key);
      pack_transposed(head.k + first_key * spec.k_stride, spec.k_stride, count, width, keys);
      pack(head.v + first_key * spec.v_stride, spec.v_stride, count, width, values);
      for (int64_t query = begin; query < end; query += tile_height) {
        const Tile tile(spec, query, first_key, count);
        float *const tops = largest + query - begin, *const totals = sums + query - begin, *const dst = head.dst + query * dst_row;
        multiply_by_keys(spec, tile, head.q + query * spec.q_stride, spec.q_stride, keys, scores);
        avx512::softmax(tile.scores, scores, tops, totals, factors);
        if (first_key > 0) avx512::scale_rows(dst, dst_row, tile.height, width, factors);
        const bool done = first_key == begin;
        for (int64_t i = 0; done && i < tile.height; ++i) {
          factors[i] = 1.0f / totals[i];
          if (!head.saved) continue;
          float* const saved = head.saved + (query + i) * attention_saved;
          saved[0] = tops[i];
          saved[1] = factors[i];
        }
        multiply_scores(spec, tile, scores, values, dst, dst_row, first_key > 0, done ? factors : nullptr);
      }
    }
  }
}

// The heads that share keys and values; q, dst and diff_q begin with the first of them.
struct Group {
  const float *q, *k, *v, *dst, *diff_dst, *saved;
  float *diff_q, *diff_k, *diff_v;
};

void backward_group(const AttentionSpec& spec, const Group& group) {
  const int64_t width = spec.head_dim, dst_row = spec.heads * width, panels = panels_floats(width);
  Scratch scratch(5 * panels + 2 * block * score_row);
  float *const keys = scratch.take(panels), *const values = scratch.take(panels), *const packed_keys = scratch.take(panels);
  float *const packed_q = scratch.take(panels), *const packed_diff = scratch.take(panels);
  float *const probabilities = scratch.take(block * score_row), *const diffs = scratch.take(block * score_row);
  float largest[tile_height], inverse[tile_height], deltas[tile_height];

  // One block of scores of one head. add_q, add_kv: to what earlier blocks gave.
  const auto add_block = [&](int64_t head, int64_t begin, int64_t first_key, int64_t count, bool add_q, bool add_kv) {
    const int64_t end = std::min(begin + block, spec.length), queries = end - begin;
    const float *const q = group.q + head * width, *const dst = group.dst + head * width, *const diff_dst = group.diff_dst + head * width;
    pack(q + begin * spec.q_stride, spec.q_stride, queries, width, packed_q);
    pack(diff_dst + begin * dst_row, dst_row, queries, width, packed_diff);
    for (int64_t query = begin; query < end; query += tile_height) {
      const Tile tile(spec, query, first_key, count);
      float *const p = probabilities + (query - begin) * score_row, *const diff = diffs + (query - begin) * score_row;
      const float* const saved = group.saved + (head * spec.length + query) * attention_saved;
      for (int64_t i = 0; i < tile.height; ++i) {
        largest[i] = saved[i * attention_saved];
        inverse[i] = saved[i * attention_saved + 1];
      }
      multiply_by_keys(spec, tile, q + query * spec.q_stride, spec.q_stride, keys, p);
      multiply_by_keys(spec, tile, diff_dst + query * dst_row, dst_row, values, diff);
      avx512::dot_rows(dst + query * dst_row, diff_dst + query * dst_row, dst_row, tile.height, width, deltas);
      avx512::softmax_backward(tile.scores, p, diff, largest, inverse, deltas);
      multiply_scores(spec, tile, diff, packed_keys, group.diff_q + head * width + query * spec.q_stride, spec.q_stride, add_q, nullptr);
    }
    for (int64_t key = 0; key < count; key += tile_height) {
      const int64_t height = std::min(tile_height, count - key), from = begin == first_key ? key : 0;  // the first query that sees one of them
      const auto multiply_columns = [&](const float* scores, const float* packed, float* c, int64_t row) {
        avx512::multiply({height, width, queries - from, scores + from * score_row + key, score_row, true, packed + from * panel_width,
                          block * panel_width, c + (first_key + key) * row, row, add_kv, nullptr});
      };
      multiply_columns(diffs, packed_q, group.diff_k, spec.k_stride);
      multiply_columns(probabilities, packed_diff, group.diff_v, spec.v_stride);
    }
  };
  for (int64_t first_key = 0; first_key < spec.length; first_key += block) {
    const int64_t count = std::min(block, spec.length - first_key);
    pack_transposed(group.k + first_key * spec.k_stride, spec.k_stride, count, width, keys);
    pack_transposed(group.v + first_key * spec.v_stride, spec.v_stride, count, width, values);
    pack(group.k + first_key * spec.k_stride, spec.k_stride, count, width, packed_keys);
    for (int64_t head = 0; head < spec.heads / spec.kv_heads; ++head)
      for (int64_t begin = first_key; begin < spec.length; begin += block)
        add_block(head, begin, first_key, count, first_key > 0, head > 0 || begin > first_key);
  }
}

}  // namespace

void attention_forward(const AttentionSpec& spec, const AttentionInputs& in, float* dst, float* saved) {
  const int64_t width = spec.head_dim, group = spec.heads / spec.kv_heads;
  const auto one = [&](int64_t i) {
    const int64_t head = i % spec.heads, token = i / spec.heads * spec.length, shared = head / group * width;
    forward_head(spec, {in.q + token * spec.q_stride + head * width, in.k + token * spec.k_stride + shared,
                        in.v + token * spec.v_stride + shared, dst + (token * spec.heads + head) * width,
                        saved ? saved + i * spec.length * attention_saved : nullptr});
  };
  oneapi::tbb::parallel_for(int64_t{0}, spec.batch * spec.heads, one, oneapi::tbb::simple_partitioner{});
}

void attention_backward(const AttentionSpec& spec, const AttentionInputs& in, const float* dst, const float* diff_dst, const float* saved,
                        const AttentionGradients& diff) {
  const int64_t width = spec.head_dim, group = spec.heads / spec.kv_heads;
  const auto one = [&](int64_t i) {
    const int64_t shared = i % spec.kv_heads, head = shared * group, token = i / spec.kv_heads * spec.length;
    const int64_t q = token * spec.q_stride + head * width, k = token * spec.k_stride + shared * width,
                  v = token * spec.v_stride + shared * width, to = (token * spec.heads + head) * width;
    backward_group(spec, {in.q + q, in.k + k, in.v + v, dst + to, diff_dst + to, saved + i * group * spec.length * attention_saved,
                          diff.q + q, diff.k + k, diff.v + v});
  };
  oneapi::tbb::parallel_for(int64_t{0}, spec.batch * spec.kv_heads, one, oneapi::tbb::simple_partitioner{});
}

}  // namespace ppengine::ops::cpu
