// Muon: matrices of hidden layers are updated by their orthogonalised momentum. As torch.optim.Muon.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <ppengine/engine/weights/optimizer.hpp>
#include <ppengine/engine/weights/whole_parameters.hpp>
#include <ppengine/ops/matmul.hpp>

namespace ppengine::engine {

class MuonUpdates {
 public:
  MuonUpdates(ModelRank& model, const OptimizerOptions& options, WholeParameters& whole);

  // Whether a parameter is updated here: linears' weights but for the head's and tied ones.
  bool has(ParameterId parameter) const;
  // The matrices of a bucket; false where it has none. momentum: of this rank's parts of the stage.
  bool update(ops::Stream& stream, StageId stage, std::size_t bucket, float* momentum, double lr, double gradient_scale);

 private:
  struct Products {  // of a Newton-Schulz iteration on [rows, columns], rows <= columns
    std::unique_ptr<ops::Matmul> gram, square, step;
  };
  Products& products(std::int64_t rows, std::int64_t columns, bool transposed);
  void add_momentum(ops::Stream& stream, float* kept, const float* gradient, float* ahead, std::int64_t count, double gradient_scale);
  void round(ops::Stream& stream, ops::Buffer& values, std::int64_t count);
  void orthogonalise(ops::Stream& stream, std::int64_t rows, std::int64_t columns, bool transposed);

  ModelRank& model_;
  OptimizerOptions options_;
  std::map<std::tuple<std::int64_t, std::int64_t, bool>, Products> products_;
  WholeParameters& whole_;
  ops::Buffer ahead_, matrix_, next_, gram_, polynomial_, narrow_, scratch_;
};

}  // namespace ppengine::engine
