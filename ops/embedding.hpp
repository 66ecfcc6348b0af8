// Token embedding, with learned positions where there are any.
#pragma once

#include <memory>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops {

struct EmbeddingSpec {
  std::int64_t batch = 0, length = 0;
  std::int64_t width = 0, vocabulary = 0;
  std::int64_t positions = 0;    // rows of the position table; 0: none
  std::int64_t first_token = 0;  // the table holds tokens [first_token, first_token + vocabulary) (vocabulary split): others give zero
  Type type = Type::f32;
  std::int64_t padding = -1;  // the token whose row gets no gradient
};

class Embedding {
 public:
  static std::unique_ptr<Embedding> make(Device& device, const EmbeddingSpec& spec);
  virtual ~Embedding() = default;
  // dst[batch*length, width] = tokens[ids] + positions[first[b] + t] (first null: 0). Ids outside of the table give a row of zeros.
  virtual void forward(Stream& stream, const std::int32_t* ids, const void* token_table, const void* position_table,
                       const std::int32_t* first, void* dst) = 0;
  // diff_positions counts every token, also those outside of the table: with a split vocabulary every rank gets the whole of it.
  // Deterministic: the same bits whenever run again. Without accumulate the tables' gradients are zeroed first.
  virtual void backward_weight(Stream& stream, const std::int32_t* ids, const void* diff_dst, float* diff_tokens, float* diff_positions,
                               bool accumulate) = 0;
};

}  // namespace ppengine::ops
