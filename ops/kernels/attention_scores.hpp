// Which keys a query sees, and what becomes of a product of query and key before the softmax.
#pragma once

#include "attention_shape.hpp"
#include "common.hpp"

// The first key that a query sees.
inline long first_seen(const AttentionShape& s, long query) {
  const long first = query - s.window + 1;
  return first > 0 ? first : 0;
}

inline bool sees(const AttentionShape& s, long query, long key) { return key <= query && key > query - s.window; }

inline float score_of(const AttentionShape& s, float product) {
  const float score = s.scale * product;
  return s.cap > 0 ? s.cap * sycl::tanh(score / s.cap) : score;
}

// The derivative of score_of by the product, from the score.
inline float score_slope(const AttentionShape& s, float score) {
  if (s.cap <= 0) return s.scale;
  const float share = score / s.cap;
  return s.scale * (1.0f - share * share);
}
