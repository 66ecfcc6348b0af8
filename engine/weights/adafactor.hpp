// Adafactor: of a matrix' second moments only the means of rows and columns are kept. As torch.optim.Adafactor with its defaults
// (beta2_decay -0.8, eps (epsilon of f32, 1e-3), d 1).
#pragma once

#include <map>
#include <vector>

#include <ppengine/engine/weights/optimizer.hpp>
#include <ppengine/engine/weights/whole_parameters.hpp>

namespace ppengine::engine {

class AdafactorUpdates {
 public:
  AdafactorUpdates(ModelRank& model, const OptimizerOptions& options, WholeParameters& whole);

  void update(ops::Stream& stream, StageId stage, std::size_t bucket, std::int64_t step, double lr, double gradient_scale);
  // The second moments that the means stand for, at the places of this rank's parts of the stage; and back (from the device's memory). Row
  // and column means of these are the means themselves.
  std::vector<float> expand(ops::Stream& stream, StageId stage) const;
  void collect(ops::Stream& stream, StageId stage, const float* flat);

 private:
  struct Means {
    ops::Buffer row, column;  // column: empty for a vector, whose row has all elements
    std::int64_t rows = 1, columns = 1;
  };
  void add_means(ops::Stream& stream, Means& means, const float* gradient, double gradient_scale, float weight);
  void collect(ops::Stream& stream, const Means& means, const float* moments);
  double sum_of_squares(ops::Stream& stream, const float* values, std::int64_t count);
  // Of a bucket's parameters, each over all ranks.
  std::vector<double> squares_of_values(ops::Stream& stream, StageId stage, const Bucket& bucket);

  ModelRank& model_;
  OptimizerOptions options_;
  WholeParameters& whole_;
  std::map<std::pair<StageId, ParameterId>, Means> means_;  // by stage and parameter
  ops::Buffer squares_, turned_, sums_, scratch_;
};

}  // namespace ppengine::engine
