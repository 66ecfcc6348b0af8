// Cross entropy fused with softmax over [rows,classes]; targets below zero are masked out.
#pragma once

#include <memory>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops {

struct CrossEntropySpec {
  std::int64_t rows = 0, classes = 0;
  Type type = Type::f32;
};

class CrossEntropy {
 public:
  static std::unique_ptr<CrossEntropy> make(Device& device, const CrossEntropySpec& spec);
  virtual ~CrossEntropy() = default;

  // losses[row] = -log softmax(logits)[target], 0 where masked (f32).
  virtual void forward(Stream& stream, const void* logits, const std::int32_t* targets, float* losses) = 0;
  // The same, and in one pass diff[row,:] = weight · (softmax(logits) - onehot(target)), zeros where masked. diff may be logits.
  // weight: one over the number of valid tokens in the whole global batch.
  virtual void forward_backward(Stream& stream, const void* logits, const std::int32_t* targets, float weight, float* losses,
                                void* diff) = 0;
};

// The same where each of several ranks has some of the classes: no rank ever sees all logits of a row.
//   part()  on every rank; then the ranks' figures are gathered, in the order of ranks; then
//   join()  on every rank: all get the same losses, each the gradient of its own logits.
struct SplitCrossEntropySpec {
  std::int64_t rows = 0, classes = 0;  // of this rank
  std::int64_t first_class = 0, all_classes = 0;
  int ranks = 1;
  Type type = Type::f32;
};

class SplitCrossEntropy {
 public:
  static std::unique_ptr<SplitCrossEntropy> make(Device& device, const SplitCrossEntropySpec& spec);
  virtual ~SplitCrossEntropy() = default;

  // f32 [3, rows]: each row's largest logit here, Σ exp(logit - largest), and the target's logit where it is here, 0 elsewhere.
  std::size_t figures() const { return static_cast<std::size_t>(3 * rows_); }
  virtual void part(Stream& stream, const void* logits, const std::int32_t* targets, float* mine) = 0;
  // all: f32 [ranks, 3, rows]. diff null: losses only; it may be logits.
  virtual void join(Stream& stream, const void* logits, const std::int32_t* targets, const float* all, float weight, float* losses,
                    void* diff) = 0;

 protected:
  explicit SplitCrossEntropy(std::int64_t rows) : rows_(rows) {}

 private:
  std::int64_t rows_;
};

}  // namespace ppengine::ops
