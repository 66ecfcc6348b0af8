// The inner loops of attention on CPUs: products of a few rows with packed panels, and what happens to scores on the way.
#pragma once

#include <ppengine/ops/cpu/loops.hpp>

namespace ppengine::ops::cpu {

// c[height,width] = factors[height] · ((c +) a[height,depth] · panels), with height up to tile_height. A register of columns that nobody
// wants is left out.
struct RowsByPanels {
  std::int64_t height, width, depth;
  const float* a;
  std::int64_t row_a;
  bool transposed_a;    // a is [depth, height...]
  const float* panels;  // as pack_panel leaves them
  std::int64_t panel;   // floats from one to the next
  float* c;
  std::int64_t row_c;
  bool add;
  const float* factors;  // or null
};

// Rows of scores: the first sees the first `seen` keys, each of the others one more, at most `keys` in all. They are computed, and
// written with zeros where a key is not seen, up to the next whole register.
struct Scores {
  std::int64_t height, seen, keys;
  std::int64_t row;
  float scale;
};

struct AttentionLoops {
  void (*multiply)(const RowsByPanels& product);
  // scores = exp(scale · scores) / 2^largest, where largest (the exponents of two of the largest ones) and sums go on from what earlier
  // keys left there, minus infinity and zero at first. factors: what results made with the former largest must be multiplied with.
  void (*softmax)(const Scores& of, float* scores, float* largest, float* sums, float* factors);
  // p = inverse · exp(scale · p) / 2^largest, diff = scale · p · (diff - delta): from scores and the gradients of probabilities to
  // probabilities and the gradients of scores.
  void (*softmax_backward)(const Scores& of, float* p, float* diff, const float* largest, const float* inverse, const float* deltas);
  // c[i] *= factors[i]
  void (*scale_rows)(float* c, std::int64_t row_c, std::int64_t height, std::int64_t width, const float* factors);
  // dots[i] = a[i] · b[i]
  void (*dot_rows)(const float* a, const float* b, std::int64_t row, std::int64_t height, std::int64_t width, float* dots);
};
const AttentionLoops* attention_loops();  // null as in loops.hpp

}  // namespace ppengine::ops::cpu
