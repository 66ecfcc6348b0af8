// AdamW, SGD, Muon and Adafactor over the flat buffers of a rank's stages (sharded: over its parts of them), with learning-rate schedules.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/training_options.hpp>
#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/device/stream.hpp>

namespace ppengine::comm {
class Communicator;
}

namespace ppengine::engine {

class ModelRank;
class AdafactorUpdates;
class MuonUpdates;
class WholeParameters;

class Optimizer {
 public:
  // tensor: the ranks that divide parameters, for optimizers that look at whole matrices; null where none does.
  Optimizer(ModelRank& model, const OptimizerOptions& options, comm::Communicator* tensor = nullptr);
  ~Optimizer();

  // One update from the gradients, each multiplied by `gradient_scale` as it is read. Parameters that the loss does not depend on stay as
  // they are.
  void step(ops::Stream& stream, double lr, double gradient_scale);
  // The same bucket by bucket: begin_step, then every bucket of every stage once, in any order.
  void begin_step() { ++steps_; }
  void update(ops::Stream& stream, StageId stage, std::size_t bucket, double lr, double gradient_scale);
  // Whether ranks wait for each other in an update: then all that share a stage update its buckets in one order.
  bool meets_ranks() const;
  std::int64_t steps() const { return steps_; }  // updates so far
  void set_steps(std::int64_t steps) { steps_ = steps; }

  const OptimizerOptions& options() const { return options_; }
  // The state that a checkpoint holds beside each parameter: "exp_avg", "exp_avg_sq" or "momentum_buffer".
  std::vector<std::string> state_names() const;
  // In f32: itself, or where it is kept otherwise a copy until the next call, which store_state puts back (all ranks that share the stage
  // call it).
  float* state(StageId stage, std::size_t which);
  void store_state(StageId stage, std::size_t which);

 private:
  struct Range {  // of this rank's parts, with one weight decay
    std::size_t offset, count;
    float decay;
  };
  struct Stage {
    StageId index;
    std::vector<std::vector<Range>> buckets;
    std::vector<ops::Buffer> state;
  };
  void adamw(ops::Stream& stream, const Stage& stage, const Range& range, float* values, const float* gradients, void* copy, double lr,
             double gradient_scale);
  const Stage& find(StageId stage) const;
  ModelRank& model_;
  OptimizerOptions options_;
  std::vector<Stage> stages_;
  std::int64_t steps_ = 0;
  ops::Buffer wide_;                        // of state(), where it is kept narrower
  std::unique_ptr<WholeParameters> whole_;  // null: parts are enough
  std::unique_ptr<MuonUpdates> muon_;       // null: another optimizer
  std::unique_ptr<AdafactorUpdates> adafactor_;
};

}  // namespace ppengine::engine
