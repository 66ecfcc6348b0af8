// AdamW, SGD, Muon and Adafactor over the flat buffers of a rank's stages (sharded: over its parts of them), with learning-rate schedules.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/engine/graph/ids.hpp>
#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>

namespace ppengine::comm {
class Communicator;
}

namespace ppengine::engine {

// muon: Muon for the matrices of hidden layers, AdamW for all others.
enum class OptimizerKind { adamw, sgd, muon, adafactor };
OptimizerKind parse_optimizer(std::string_view name);  // adamw | sgd | muon | adafactor; ConfigError otherwise
const char* name_of(OptimizerKind kind);

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::adamw;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double momentum = 0.0;  // sgd
  double muon_momentum = 0.95;
  double weight_decay = 0.01;             // adamw: decoupled; sgd: L2
  bool decay_1d = true;                   // false: norms and biases are spared
  ops::Type state_type = ops::Type::f32;  // bf16: AdamW's moments take half the memory, and are rounded at random without bias
};

enum class LrShape { constant, cosine, wsd };
LrShape parse_lr_schedule(std::string_view name);  // constant | cosine | wsd

struct LrSchedule {
  LrShape shape = LrShape::constant;
  double peak = 1e-3;
  int64_t warmup = 0;             // steps; the k-th of them (from 1) runs at peak * k / warmup
  int64_t steps = 0;              // of the run. cosine: falls from peak after the warm-up towards the minimum at its end
  int64_t decay = 0;              // wsd: of these the last, in which it falls in a straight line, to reach the minimum with the last one
  double minimum = 0;             // cosine and wsd: it never falls below this
  double at(int64_t step) const;  // of step number `step`, from 1
};

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
  void update(ops::Stream& stream, StageId stage, size_t bucket, double lr, double gradient_scale);
  // Whether ranks wait for each other in an update: then all that share a stage update its buckets in one order.
  bool meets_ranks() const;
  int64_t steps() const { return steps_; }  // updates so far
  void set_steps(int64_t steps) { steps_ = steps; }

  const OptimizerOptions& options() const { return options_; }
  // The state that a checkpoint holds beside each parameter: "exp_avg", "exp_avg_sq" or "momentum_buffer".
  std::vector<std::string> state_names() const;
  // In f32: itself, or where it is kept otherwise a copy until the next call, which store_state puts back (all ranks that share the stage
  // call it).
  float* state(StageId stage, size_t which);
  void store_state(StageId stage, size_t which);

 private:
  struct Range {  // of this rank's parts, with one weight decay
    size_t offset, count;
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
  int64_t steps_ = 0;
  ops::Buffer wide_;                        // of state(), where it is kept narrower
  std::unique_ptr<WholeParameters> whole_;  // null: parts are enough
  std::unique_ptr<MuonUpdates> muon_;       // null: another optimizer
  std::unique_ptr<AdafactorUpdates> adafactor_;
};

}  // namespace ppengine::engine
