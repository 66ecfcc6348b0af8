// The inner loops of decoding on CPUs: linear layers over few rows, linear layers over rows of bytes, attention of single tokens.
#pragma once

#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/kernels/attention_shape.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::ops::cpu {

// dst[rows,out] = epilogue(norm(src[rows,in]) · Wᵀ)
struct LinearStep {
  const float* src;
  const void* weight;
  const float *scales, *bias, *residual, *gate, *gamma, *beta;  // null: there is none; gamma stands for the norm
  float* dst;
  std::int64_t in, out, group;
  float epsilon;
  bool centered;
  int activation;  // as in kernels/few_rows_shared.hpp
};

// New keys and values go into the caches, queries attend to what is there; a head of one token at a time.
struct AttentionStep {
  const float *q, *k, *v;
  const std::int32_t* filled;
  float *k_cache, *v_cache, *dst;
  std::int64_t k_stride, v_stride, capacity;  // strides of new keys and values, between tokens
  AttentionShape shape;
};

// One token at a time.
struct RotaryStep {
  const float *src, *cosines, *sines;
  const std::int32_t* first;
  float* dst;
  std::int64_t src_stride, dst_stride;
  RotaryShape shape;
};

constexpr std::int64_t most_few_rows = 8;     // that a linear in f32 arithmetic takes
constexpr std::int64_t widest_head = 256;     // of attention
constexpr std::int64_t outputs_at_once = 16;  // chunks of linears begin at multiples of it

struct DecodeLoops {
  // Outputs [begin, end) of a linear over up to most_few_rows rows, without its norm: f32 arithmetic, weights in f32, bf16 or int8. A row's
  // bits do not depend on the other rows.
  void (*linear)(const LinearStep& step, WeightFormat format, std::int64_t rows, std::int64_t begin, std::int64_t end);
  // One head of one token, heads up to widest_head; chunk = token · heads + head.
  void (*attend)(const AttentionStep& step, std::int64_t chunk);
};

// Rows of activations in bytes, for products with 4-bit weights: blocks of 32 inputs share a scale (largest |x| / 127), as integers -127 to
// 127 in the order in which a register meets the weights' halves. Behind the bytes lie the scales, a register's worth per register of
// weights, then the sums of each of the weight's groups. What is not finite makes its whole block NaN.
struct ByteRowShape {
  std::int64_t in, group;           // of the weight
  std::int64_t scales_at, sums_at;  // bytes from the begin of a row
  std::int64_t bytes;               // of a row
};

struct ByteLoops {
  ByteRowShape (*shape)(std::int64_t in, std::int64_t group);
  void (*quantize)(const ByteRowShape& shape, const float* src, void* row);
  // Outputs [begin, end) of a linear with 4-bit weights over any number of rows. Products of bytes are exact, blocks are added up in f32:
  // the result's bits depend on neither the other rows nor on their number.
  void (*linear)(const LinearStep& step, const ByteRowShape& shape, const void* byte_rows, std::int64_t rows, std::int64_t begin,
                 std::int64_t end);
};

// dst[rows, begin..end) = epilogue(sums): bias, activation or gate, residual. sums: [rows][row_sums], the first column is `begin`.
void finish_outputs(const LinearStep& step, float* sums, std::int64_t row_sums, std::int64_t first_row, std::int64_t rows,
                    std::int64_t begin, std::int64_t end);

// Null where the CPU has none of the vectors that these are compiled for.
const DecodeLoops* decode_loops();
const ByteLoops* byte_loops();

}  // namespace ppengine::ops::cpu
