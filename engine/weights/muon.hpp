// Muon: matrices of hidden layers are updated by their orthogonalised momentum. As torch.optim.Muon, but computed in f32.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include <ppengine/engine/model_rank.hpp>
#include <ppengine/engine/weights/optimizer.hpp>
#include <ppengine/ops/matmul.hpp>

namespace ppengine::engine {

class MuonUpdates {
 public:
  // ConfigError where parameters are sharded, or divided over tensor-parallel ranks: a matrix must be whole.
  MuonUpdates(ModelRank& model, const OptimizerOptions& options);

  // Whether a parameter is updated here: linears' weights but for the head's and tied ones.
  bool has(ParameterId parameter) const;
  // The matrices of a bucket; false where it has none.
  bool update(ops::Stream& stream, StageId stage, size_t bucket, float* momentum, double lr, double gradient_scale);

 private:
  struct Products {  // of a Newton-Schulz iteration on [rows, columns], rows <= columns
    std::unique_ptr<ops::Matmul> gram, square, step;
  };
  Products& products(int64_t rows, int64_t columns, bool transposed);
  void orthogonalise(ops::Stream& stream, int64_t rows, int64_t columns, bool transposed);

  ModelRank& model_;
  OptimizerOptions options_;
  std::map<std::tuple<int64_t, int64_t, bool>, Products> products_;
  ops::Buffer matrix_, next_, gram_, polynomial_, scratch_;
};

}  // namespace ppengine::engine
