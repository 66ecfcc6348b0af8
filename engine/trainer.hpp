// Trainer: one rank of a training run. Every rank makes one and calls the same methods; the communicator joins them.
//
//   comm::run_threads(2, {}, [&](comm::Communicator& world) {
//     engine::Trainer trainer(graph, {.parallel = {.pipeline = 2, .microbatches = 4}}, world, batch_size, length);
//     for (const auto& batch : data) std::cout << trainer.step(batch, 1e-3).loss << "\n";
//   });
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <ppengine/engine/batch.hpp>
#include <ppengine/engine/gradients/hooks.hpp>
#include <ppengine/engine/measure/timeline.hpp>
#include <ppengine/engine/parallel.hpp>
#include <ppengine/engine/training_options.hpp>

namespace ppengine::engine {

class Evaluator;
// What a trainer is made of. None of these is installed: a program needs them only to work on the engine itself.
class ModelRank;
class Optimizer;
class Pipeline;

// What to do when the loss or the gradients' norm of a step is a NaN or an infinity.
enum class OnNan {
  stop,    // an Error on all ranks: the step, the rank and the first module that made it
  skip,    // the update is left out, and training goes on with the next batch
  ignore,  // nothing
};
OnNan parse_on_nan(std::string_view name);  // stop | skip | ignore; ConfigError otherwise

struct TrainerOptions {
  ParallelOptions parallel;
  OptimizerOptions optimizer;
  double grad_clip = 0;  // 0: no clipping
  bool recompute = false;
  OnNan on_nan = OnNan::stop;
  std::uint64_t seed = 0;  // of initial weights and dropout

  // Data parallel.
  BucketOptions buckets;                   // of gradients that are reduced together
  HookOptions hook;                        // how they are
  std::shared_ptr<GradientHook> own_hook;  // in place of a built-in one
  bool verify = true;                      // compare models and settings of all ranks at the start
  bool broadcast = true;                   // weights of the first data-parallel rank go to the others, at the start and in synchronize()
  bool allow_unused = true;                // false: parameters that the loss does not depend on are an error that names them
  bool shared_statistics = false;          // batch norm measures the microbatches of all data-parallel ranks together
  bool optimizer_in_backward = false;      // each bucket is updated as soon as it is reduced; needs grad_clip = 0
  bool uneven_shares = false;              // a batch that cannot be divided over the data-parallel ranks is shared out as evenly as it goes
  // Called in every step when the sum of all ranks' gradients is there and before any parameter changes; what it throws ends the step.
  std::function<void(double loss, double grad_norm)> before_update;
};

// What to do when some data-parallel ranks have no more data.
enum class Uneven {
  average_active,  // gradients are averaged over the tokens that there are
  average_all,     // the same, times the share of ranks that have data: as if the others had given zeros
  stop,            // an Error on all ranks that names those without data
};

struct StepResult {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean over the valid tokens of the whole batch, before the update
  double grad_norm = 0;   // before clipping
  double lr = 0;
  std::int64_t tokens = 0;  // of the whole batch
  double seconds = 0;
  double idle_share = 0;     // of this rank's time in the plan
  double backward = 0;       // seconds of this rank's backwards
  double communication = 0;  // seconds in which buckets of this rank were being reduced
  double overlap = 0;        // of these, before its last forward or backward had ended
  bool skipped = false;      // there was no update: OnNan::skip
};

class Trainer {
 public:
  Trainer(std::shared_ptr<const Graph> graph, const TrainerOptions& options, comm::Communicator& world, std::int64_t batch_size,
          std::int64_t length);
  ~Trainer();

  // One update from one batch, or from several whose gradients add up. All ranks give the same batches.
  StepResult step(const Batch& batch, double lr) { return step(std::span(&batch, 1), lr); }
  StepResult step(std::span<const Batch> batches, double lr);
  // Adds a batch's gradients without an update and, but where parameters are sharded, without any communication between data-parallel
  // ranks (PyTorch's no_sync). The next step averages over its tokens too.
  void accumulate(const Batch& batch);
  // Each data-parallel rank brings a batch of its own, of any size from one sequence per microbatch, or null when it has no more; the ranks
  // of one copy of the model bring the same. Ranks without data take part in all communication with zeros, so that all copies stay equal.
  // Nothing when no rank has data.
  std::optional<StepResult> step_own(const Batch* mine, double lr, Uneven uneven = Uneven::average_active);
  // For a rank that has lost the others after it has got a step's gradients, and before its update: makes the update all the same, with the
  // norm that another rank knows. Any thread may call it while step() waits for the others, or after it has thrown.
  bool ready_to_update() const;
  void finish_update(double grad_norm);
  // After weights were loaded: those of the first data-parallel rank go to the others. Not where they are sharded, nor with broadcast off.
  void synchronize();
  // Compares the parameters of all data-parallel copies, bit by bit through checksums. All ranks call it. Error on all of them that names
  // the ranks whose copy has drifted from the others'. Sharded parameters have no copies: nothing to compare.
  void check_replicas();
  // Losses without an update, between steps.
  Evaluator& evaluator();

  ModelRank& model();
  Optimizer& optimizer();
  const schedules::Plan& plan() const;
  const comm::Mesh& mesh() const;
  Pipeline& pipeline();
  // What this rank did when in the last step, and for how long it was busy with forwards and backwards.
  const std::vector<TimedAction>& timeline() const;
  double busy_seconds() const;
  // The buckets of the last step that were reduced, in order.
  const std::vector<TimedReduction>& reductions() const;
  // A flat buffer of a whole stage, from this rank's (not sharded: that itself) of values, gradients or optimizer state. Sharded, all
  // data-parallel ranks call it, and it holds until the next call.
  const float* whole(StageId stage, const float* local);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ppengine::engine
