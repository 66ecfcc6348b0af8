// The norm of a model's gradients, bucket by bucket. Its bits do not depend on how the model is split into stages: each parameter is summed
// by itself, and the parameters in the graph's order.
#pragma once

#include <map>
#include <span>
#include <vector>

#include <ppengine/engine/model_rank.hpp>
#include <ppengine/ops/square_sums.hpp>

namespace ppengine::engine {

class GradientNorm {
 public:
  // tensor_rank: of several ranks that have the same parameter the first one counts it.
  GradientNorm(ModelRank& model, int tensor_rank);

  // Begins anew.
  void clear();
  // Adds what this rank holds of a bucket's gradients. A weight that several stages use counts for its owner alone. Blocks; one thread at
  // a time.
  void add(ops::Stream& stream, StageId stage, std::size_t bucket);
  // The same where all that is not zero lies elsewhere too, one after the other. The bucket has one parameter, and is not sharded.
  void add(ops::Stream& stream, StageId stage, std::size_t bucket, const float* gradients, std::size_t count);

  // Sums of squares by parameter: to be added up over the ranks that have parts of the model, then with total().
  const IdVector<ParameterId, double>& squares() const { return squares_; }
  static double total(std::span<const double> squares);

 private:
  struct Counted {
    std::vector<ParameterId> parameters;
    ops::SquareSums sums;
  };

  ModelRank& model_;
  std::map<StageId, std::vector<Counted>> buckets_;  // by stage
  IdVector<ParameterId, double> squares_;
  ops::Buffer scratch_;
};

}  // namespace ppengine::engine
