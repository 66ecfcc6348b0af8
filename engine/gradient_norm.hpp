// The norm of a model's gradients, bucket by bucket.
#pragma once

#include <map>
#include <vector>

#include <ppengine/engine/model_rank.hpp>

namespace ppengine::engine {

class GradientNorm {
 public:
  // tensor_rank: of several ranks that have the same parameter the first one counts it.
  GradientNorm(ModelRank& model, int tensor_rank);

  // The sum of squares of what this rank holds of a bucket's gradients. A weight that several stages use counts for its owner alone.
  // Blocks; one thread at a time.
  double squares(ops::Stream& stream, int stage, size_t bucket);
  // The same where all that is not zero lies elsewhere too, one after the other. The bucket has one parameter, and is not sharded.
  double squares(ops::Stream& stream, int stage, size_t bucket, const float* gradients, size_t count);

 private:
  struct Run {
    size_t begin, end;  // of this rank's gradients
  };
  double sum(ops::Stream& stream, const float* gradients, size_t count);

  ModelRank& model_;
  std::map<int, std::vector<std::vector<Run>>> runs_;  // by stage, then bucket
  ops::Buffer scratch_;
};

}  // namespace ppengine::engine
