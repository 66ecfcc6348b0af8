// Evaluator: forward passes of one rank over batches of any size; the mean loss is known on every rank.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>

#include <ppengine/engine/batch.hpp>
#include <ppengine/engine/parallel.hpp>

namespace ppengine::engine {

class HostOutput;
class ModelRank;
class Pipeline;
class Profile;

class Evaluator {
 public:
  // Uses the weights of `model`, which may be in training at the same time (between its steps).
  Evaluator(ModelRank& model, const ParallelOptions& options, const comm::Mesh& mesh, bool output = false);
  ~Evaluator();

  struct Result {
    double loss_sum = 0;  // over valid tokens
    std::int64_t valid_tokens = 0;
    double loss() const { return valid_tokens ? loss_sum / double(valid_tokens) : 0.0; }
  };
  // All ranks give the same batch; it is split over data-parallel ranks and microbatches as evenly as possible.
  Result run(const Batch& batch);

  // On the ranks that have the last stage, of tensor-parallel ones on the first: the graph's output [sequences, length, width] for
  // sequences starting at `first`, f32 on the host.
  std::function<void(std::int64_t first, std::int64_t sequences, std::span<const float> output)> on_output;
  // Measures every instruction from now on (slower); null: no more.
  void set_profile(Profile* profile) { profile_ = profile; }

 private:
  Pipeline& pipeline_for(int microbatches);

  ModelRank& model_;
  ParallelOptions options_;
  const comm::Mesh& mesh_;
  bool output_;
  std::map<int, std::unique_ptr<Pipeline>> pipelines_;  // by number of microbatches
  std::unique_ptr<HostOutput> host_;
  Profile* profile_ = nullptr;
};

}  // namespace ppengine::engine
