// Adafactor: of a matrix' second moments only the means of rows and columns are kept. As torch.optim.Adafactor with its defaults
// (beta2_decay -0.8, eps (epsilon of f32, 1e-3), d 1).
#pragma once

#include <map>

#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/weights/optimizer.hpp>

namespace ppengine::engine {

class AdafactorUpdates {
 public:
  // ConfigError where parameters are sharded, or divided over tensor-parallel ranks: a parameter must be whole.
  AdafactorUpdates(ModelRank& model, const OptimizerOptions& options);

  void update(ops::Stream& stream, StageId stage, size_t bucket, int64_t step, double lr, double gradient_scale);
  // The second moments that the means stand for, at the parameters' places of a flat buffer of the stage on the host; and back. Row and
  // column means of these are the means themselves.
  std::vector<float> expand(ops::Stream& stream, StageId stage) const;
  void collect(ops::Stream& stream, StageId stage, const std::vector<float>& flat);

 private:
  struct Means {
    ops::Buffer row, column;  // column: empty for a vector, whose row has all elements
    int64_t rows = 1, columns = 1;
  };
  void add_means(ops::Stream& stream, Means& means, const float* gradient, double gradient_scale, float weight);
  double root_mean_square(ops::Stream& stream, const float* values, int64_t count);

  ModelRank& model_;
  OptimizerOptions options_;
  std::map<std::pair<StageId, ParameterId>, Means> means_;  // by stage and parameter
  ops::Buffer squares_, turned_, sums_, scratch_;
};

}  // namespace ppengine::engine
