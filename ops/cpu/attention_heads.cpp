// How attention walks over a head: blocks of queries meet blocks of keys, so that what a thread holds does not grow with the length and
// stays in its second cache. Within a block, a tile of queries at a time goes through all products while their scores are in the first
// cache.
#include <ppengine/ops/cpu/attention_heads.hpp>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <ppengine/ops/cpu/loops_attention.hpp>
#include <ppengine/ops/cpu/parallel.hpp>

namespace ppengine::ops::cpu {
namespace {

// Blocks of queries and of keys, at most. The backward keeps two whole blocks of scores.
constexpr std::int64_t forward_block = 384, backward_block = 192;
// They consist of whole tiles, so that the tiles of keys and of queries have the same borders, and of whole panels: only on the diagonal
// are there registers with keys that are not seen.
constexpr std::int64_t block_step = 96;
static_assert(forward_block % block_step == 0 && backward_block % block_step == 0);
static_assert(block_step % most_tile_height == 0 && block_step % least_tile_height == 0 && block_step % most_panel_width == 0);

constexpr std::int64_t up(std::int64_t count, std::int64_t by) { return divide_up(count, by) * by; }

// Memory of the thread, kept for its life.
class Scratch {
 public:
  explicit Scratch(std::int64_t floats) {
    struct alignas(64) Line {
      float values[most_lanes];
    };
    thread_local std::vector<Line> lines;
    const auto wanted = static_cast<std::size_t>(divide_up(floats, most_lanes));
    if (lines.size() < wanted) lines.resize(wanted);
    next_ = lines.data()->values;
  }
  float* take(std::int64_t floats) { return std::exchange(next_, next_ + floats); }

 private:
  float* next_;
};

// A tile's queries from some query on, or what is left of them, and those keys of a block that they see.
struct QueryTile {
  std::int64_t height, seen;  // by the last query
  Scores scores;
};

// The steps of both directions.
class Walk {
 public:
  Walk(const AttentionSpec& of, std::int64_t most)
      : products(*product_loops()),
        loops(*attention_loops()),
        lanes(products.lanes),
        panel_width(products.panel_width),
        tile_height(products.tile_height),
        spec(of),
        width(of.head_dim),
        dst_row(of.heads * of.head_dim),
        block(std::min(most, up(std::max<std::int64_t>(of.length, 1), block_step))),
        score_row(block + most_lanes),  // no power of two: columns of scores are read too
        panels(block * up(width, panel_width)) {}

  // Some tokens of one head, [count, width], as panels of a product over tokens.
  void pack(const float* tokens, std::int64_t row, std::int64_t count, float* to) const {
    for (std::int64_t n = 0; n < width; n += panel_width)
      products.pack_panel(tokens + n, row, false, std::min(panel_width, width - n), count, to + n * block);
  }
  // The same for a product over the width, which has a column per token.
  void pack_transposed(const float* tokens, std::int64_t row, std::int64_t count, float* to) const {
    for (std::int64_t n = 0; n < count; n += panel_width)
      products.pack_panel(tokens + n * row, row, true, std::min(panel_width, count - n), width, to + n * width);
  }

  QueryTile tile(std::int64_t query, std::int64_t first_key, std::int64_t keys) const {
    const std::int64_t height = std::min(tile_height, spec.length - query), behind = spec.causal ? query + height - first_key : keys;
    return {
        height, std::min(keys, behind), {height, std::min(keys, spec.causal ? query + 1 - first_key : keys), keys, score_row, spec.scale}};
  }
  // scores[height, seen] = rows · keys, whole registers of them.
  void multiply_by_keys(const QueryTile& tile, const float* rows, std::int64_t row, const float* transposed, float* scores) const {
    loops.multiply(
        {tile.height, up(tile.seen, lanes), width, rows, row, false, transposed, width * panel_width, scores, score_row, false, nullptr});
  }
  // c[height, width] = factors · ((c +) scores[height, seen] · packed)
  void multiply_scores(const QueryTile& tile, const float* scores, const float* packed, float* c, std::int64_t row, bool add,
                       const float* factors = nullptr) const {
    loops.multiply({tile.height, width, tile.seen, scores, score_row, false, packed, block * panel_width, c, row, add, factors});
  }

  const ProductLoops& products;
  const AttentionLoops& loops;
  const std::int64_t lanes, panel_width, tile_height;
  const AttentionSpec& spec;
  const std::int64_t width, dst_row, block, score_row, panels;  // panels: floats of a packed block
};

struct Head {
  const float *q, *k, *v;
  float *dst, *saved;
};

void forward_head(const AttentionSpec& spec, const Head& head) {
  const Walk walk(spec, forward_block);
  const std::int64_t tile_height = walk.tile_height;
  Scratch scratch(2 * walk.panels + tile_height * walk.score_row);
  float *const keys = scratch.take(walk.panels), *const values = scratch.take(walk.panels),
               *const scores = scratch.take(tile_height * walk.score_row);
  float largest[forward_block], sums[forward_block], factors[most_tile_height];
  for (std::int64_t begin = 0; begin < spec.length; begin += walk.block) {
    std::fill_n(largest, walk.block, -std::numeric_limits<float>::infinity());
    std::fill_n(sums, walk.block, 0.0f);
    const std::int64_t end = std::min(begin + walk.block, spec.length);
    for (std::int64_t first_key = 0; first_key < (spec.causal ? end : spec.length); first_key += walk.block) {
      const std::int64_t count = std::min(walk.block, spec.length - first_key);
      const bool last = spec.causal ? first_key == begin : first_key + walk.block >= spec.length;
      walk.pack_transposed(head.k + first_key * spec.k_stride, spec.k_stride, count, keys);
      walk.pack(head.v + first_key * spec.v_stride, spec.v_stride, count, values);
      for (std::int64_t query = begin; query < end; query += tile_height) {
        const QueryTile tile = walk.tile(query, first_key, count);
        float *const tops = largest + query - begin, *const totals = sums + query - begin, *const dst = head.dst + query * walk.dst_row;
        walk.multiply_by_keys(tile, head.q + query * spec.q_stride, spec.q_stride, keys, scores);
        walk.loops.softmax(tile.scores, scores, tops, totals, factors);
        if (first_key > 0) walk.loops.scale_rows(dst, walk.dst_row, tile.height, walk.width, factors);
        for (std::int64_t i = 0; last && i < tile.height; ++i) {
          factors[i] = 1.0f / totals[i];
          if (!head.saved) continue;
          float* const saved = head.saved + (query + i) * attention_saved;
          saved[0] = tops[i];
          saved[1] = factors[i];
        }
        walk.multiply_scores(tile, scores, values, dst, walk.dst_row, first_key > 0, last ? factors : nullptr);
      }
    }
  }
}

// The heads that share keys and values; q, dst and diff_q begin with the first of them.
struct Group {
  const float *q, *k, *v, *dst, *diff_dst, *saved;
  float *diff_q, *diff_k, *diff_v;
};

class Backward {
 public:
  Backward(const AttentionSpec& spec, const Group& group)
      : walk_(spec, backward_block), spec_(spec), group_(group), scratch_(5 * walk_.panels + 2 * walk_.block * walk_.score_row) {}

  void run() {
    for (std::int64_t first_key = 0; first_key < spec_.length; first_key += walk_.block) {
      const std::int64_t first_query = spec_.causal ? first_key : 0;
      const std::int64_t count = std::min(walk_.block, spec_.length - first_key);
      walk_.pack_transposed(group_.k + first_key * spec_.k_stride, spec_.k_stride, count, keys_);
      walk_.pack_transposed(group_.v + first_key * spec_.v_stride, spec_.v_stride, count, values_);
      walk_.pack(group_.k + first_key * spec_.k_stride, spec_.k_stride, count, packed_keys_);
      for (std::int64_t head = 0; head < spec_.heads / spec_.kv_heads; ++head)
        for (std::int64_t begin = first_query; begin < spec_.length; begin += walk_.block) {
          const std::int64_t end = std::min(begin + walk_.block, spec_.length);
          make_scores(head, begin, end, first_key, count);
          sum_over_queries(begin, end, first_key, count, head > 0 || begin > first_query);
        }
    }
  }

 private:
  // Probabilities and the gradients of scores of a block, and what it adds to the gradient of q.
  void make_scores(std::int64_t head, std::int64_t begin, std::int64_t end, std::int64_t first_key, std::int64_t count) {
    const std::int64_t column = head * walk_.width, dst_row = walk_.dst_row, q_row = spec_.q_stride;
    walk_.pack(group_.q + begin * q_row + column, q_row, end - begin, packed_q_);
    walk_.pack(group_.diff_dst + begin * dst_row + column, dst_row, end - begin, packed_diff_);
    float largest[most_tile_height], inverse[most_tile_height], deltas[most_tile_height];
    const std::int64_t tile_height = walk_.tile_height;
    for (std::int64_t query = begin; query < end; query += tile_height) {
      const QueryTile tile = walk_.tile(query, first_key, count);
      const float* const saved = group_.saved + (head * spec_.length + query) * attention_saved;
      for (std::int64_t i = 0; i < tile.height; ++i) {
        largest[i] = saved[i * attention_saved];
        inverse[i] = saved[i * attention_saved + 1];
      }
      const float *const dst = group_.dst + query * dst_row + column, *const diff_dst = group_.diff_dst + query * dst_row + column;
      float *const p = p_ + (query - begin) * walk_.score_row, *const diff = diff_ + (query - begin) * walk_.score_row;
      walk_.multiply_by_keys(tile, group_.q + query * q_row + column, q_row, keys_, p);
      walk_.multiply_by_keys(tile, diff_dst, dst_row, values_, diff);
      walk_.loops.dot_rows(dst, diff_dst, dst_row, tile.height, walk_.width, deltas);
      walk_.loops.softmax_backward(tile.scores, p, diff, largest, inverse, deltas);
      walk_.multiply_scores(tile, diff, packed_keys_, group_.diff_q + query * q_row + column, q_row, first_key > 0);
    }
  }

  // What the block adds to the gradients of k and v.
  void sum_over_queries(std::int64_t begin, std::int64_t end, std::int64_t first_key, std::int64_t count, bool add) const {
    const std::int64_t row = walk_.score_row, tile_height = walk_.tile_height, panel_width = walk_.panel_width;
    for (std::int64_t key = 0; key < count; key += tile_height) {
      const std::int64_t height = std::min(tile_height, count - key);
      const std::int64_t from = spec_.causal && begin == first_key ? key : 0;  // the first query that sees one of them
      const auto multiply = [&](const float* scores, const float* packed, float* c, std::int64_t row_c) {
        walk_.loops.multiply({height, walk_.width, end - begin - from, scores + from * row + key, row, true, packed + from * panel_width,
                              walk_.block * panel_width, c + (first_key + key) * row_c, row_c, add, nullptr});
      };
      multiply(diff_, packed_q_, group_.diff_k, spec_.k_stride);
      multiply(p_, packed_diff_, group_.diff_v, spec_.v_stride);
    }
  }

  float* panels() { return scratch_.take(walk_.panels); }
  float* scores() { return scratch_.take(walk_.block * walk_.score_row); }

  Walk walk_;
  const AttentionSpec& spec_;
  Group group_;
  Scratch scratch_;
  float *keys_ = panels(), *values_ = panels(), *packed_keys_ = panels(), *packed_q_ = panels(), *packed_diff_ = panels();
  float *p_ = scores(), *diff_ = scores();
};

}  // namespace

void attention_forward(const AttentionSpec& spec, const AttentionInputs& in, float* dst, float* saved) {
  const std::int64_t width = spec.head_dim, group = spec.heads / spec.kv_heads;
  for_parts(spec.batch * spec.heads, 1, [&](std::int64_t i, std::int64_t) {
    const std::int64_t head = i % spec.heads, token = i / spec.heads * spec.length, shared = head / group * width;
    forward_head(spec,
                 {in.q + token * spec.q_stride + head * width, in.k + token * spec.k_stride + shared, in.v + token * spec.v_stride + shared,
                  dst + (token * spec.heads + head) * width, saved ? saved + i * spec.length * attention_saved : nullptr});
  });
}

void attention_backward(const AttentionSpec& spec, const AttentionInputs& in, const float* dst, const float* diff_dst, const float* saved,
                        const AttentionGradients& diff) {
  const std::int64_t width = spec.head_dim, group = spec.heads / spec.kv_heads;
  for_parts(spec.batch * spec.kv_heads, 1, [&](std::int64_t i, std::int64_t) {
    const std::int64_t shared = i % spec.kv_heads, head = shared * group, token = i / spec.kv_heads * spec.length;
    const std::int64_t q = token * spec.q_stride + head * width, k = token * spec.k_stride + shared * width,
                       v = token * spec.v_stride + shared * width, to = (token * spec.heads + head) * width;
    Backward(spec, {in.q + q, in.k + k, in.v + v, dst + to, diff_dst + to, saved + i * group * spec.length * attention_saved, diff.q + q,
                    diff.k + k, diff.v + v})
        .run();
  });
}

}  // namespace ppengine::ops::cpu
