// Cross entropy fused with softmax over [rows,classes]; targets below zero are masked out.
#pragma once

#include <memory>

#include <ppengine/ops/implementation.hpp>
#include <ppengine/ops/stream.hpp>
#include <ppengine/ops/type.hpp>

namespace ppengine::ops {

struct CrossEntropySpec {
  int64_t rows = 0, classes = 0;
  Type type = Type::f32;
};

class CrossEntropy {
 public:
  static std::unique_ptr<CrossEntropy> make(Device& device, const CrossEntropySpec& spec);
  virtual ~CrossEntropy() = default;

  // losses[row] = -log softmax(logits)[target], 0 where masked (f32).
  virtual void forward(Stream& stream, const void* logits, const int32_t* targets, float* losses) = 0;
  // The same, and in one pass diff[row,:] = weight · (softmax(logits) - onehot(target)), zeros where masked. diff may be logits.
  // weight: one over the number of valid tokens in the whole global batch.
  virtual void forward_backward(Stream& stream, const void* logits, const int32_t* targets, float weight, float* losses, void* diff) = 0;
};

}  // namespace ppengine::ops
