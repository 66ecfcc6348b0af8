// Trainer: one rank of a training run. Every rank makes one and calls the same methods; the communicator joins them.
//
//   comm::run_local(2, [&](comm::Communicator& world) {
//     engine::Trainer trainer(graph, {.parallel = {.pipeline = 2, .microbatches = 4}}, world, batch_size, length);
//     for (const auto& batch : data) std::cout << trainer.step(batch, 1e-3).loss << "\n";
//   });
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/optimizer.hpp>
#include <ppengine/engine/parallel.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/tied_gradients.hpp>
#include <ppengine/engine/timeline.hpp>

namespace ppengine::engine {

struct TrainerOptions {
  ParallelOptions parallel;
  OptimizerOptions optimizer;
  double grad_clip = 0;   // 0: no clipping
  bool recompute = false;
  uint64_t seed = 0;      // of initial weights and dropout
};

struct StepResult {
  int64_t step = 0;        // from 1
  double loss = 0;         // mean over the valid tokens of the whole batch, before the update
  double grad_norm = 0;    // before clipping
  double lr = 0;
  int64_t tokens = 0;      // of the whole batch
  double seconds = 0;
  double idle_share = 0;   // of this rank's time in the plan
};

class Trainer {
 public:
  Trainer(std::shared_ptr<const Graph> graph, const TrainerOptions& options, comm::Communicator& world, int64_t batch_size, int64_t length);
  ~Trainer();

  // One update from one batch, or from several whose gradients add up. All ranks give the same batches.
  StepResult step(const Batch& batch, double lr) { return step(std::span(&batch, 1), lr); }
  StepResult step(std::span<const Batch> batches, double lr);
  // Losses without an update, between steps.
  Evaluator& evaluator() { return *evaluator_; }

  ModelRank& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  const schedules::Plan& plan() const { return pipeline_->plan(); }
  const TimelineRecorder& timeline() const { return recorder_; }
  const comm::Mesh& mesh() const { return mesh_; }
  Pipeline& pipeline() { return *pipeline_; }

 private:
  void reduce_gradients();
  double squared_norm();
  double run_batch(const Batch& batch, double weight, bool accumulate);

  TrainerOptions options_;
  comm::Mesh mesh_;
  std::shared_ptr<const Graph> graph_;  // this tensor-parallel rank's
  std::unique_ptr<ModelRank> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Pipeline> pipeline_;
  std::unique_ptr<Evaluator> evaluator_;
  std::unique_ptr<TiedGradients> tied_gradients_;
  TimelineRecorder recorder_{TimelineRecorder::Clock::time_point{}};  // one zero for all ranks of a machine
  ops::Buffer scratch_;
  double idle_ = 0;
};

}  // namespace ppengine::engine
