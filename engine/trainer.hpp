// Trainer: one rank of a training run. Every rank makes one and calls the same methods; the communicator joins them.
//
//   comm::run_threads(2, {}, [&](comm::Communicator& world) {
//     engine::Trainer trainer(graph, {.parallel = {.pipeline = 2, .microbatches = 4}}, world, batch_size, length);
//     for (const auto& batch : data) std::cout << trainer.step(batch, 1e-3).loss << "\n";
//   });
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/gradients/hooks.hpp>
#include <ppengine/engine/measure/timeline.hpp>
#include <ppengine/engine/parallel.hpp>
#include <ppengine/engine/weights/buckets.hpp>
#include <ppengine/engine/weights/optimizer.hpp>

namespace ppengine::engine {

// What a trainer is made of. None of these is installed: a program needs them only to work on the engine itself.
class GradientNorm;
class ModelRank;
class Pipeline;
class Reducer;
class TiedGradients;

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
  uint64_t seed = 0;  // of initial weights and dropout

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
  int64_t step = 0;      // from 1
  double loss = 0;       // mean over the valid tokens of the whole batch, before the update
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;  // of the whole batch
  double seconds = 0;
  double idle_share = 0;     // of this rank's time in the plan
  double backward = 0;       // seconds of this rank's backwards
  double communication = 0;  // seconds in which buckets of this rank were being reduced
  double overlap = 0;        // of these, before its last forward or backward had ended
  bool skipped = false;      // there was no update: OnNan::skip
};

class Trainer {
 public:
  Trainer(std::shared_ptr<const Graph> graph, const TrainerOptions& options, comm::Communicator& world, int64_t batch_size, int64_t length);
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
  bool ready_to_update() const { return ready_to_update_; }
  void finish_update(double grad_norm);
  // After weights were loaded: those of the first data-parallel rank go to the others. Not where they are sharded, nor with broadcast off.
  void synchronize();
  // Compares the parameters of all data-parallel copies, bit by bit through checksums. All ranks call it. Error on all of them that names
  // the ranks whose copy has drifted from the others'. Sharded parameters have no copies: nothing to compare.
  void check_replicas();
  // Losses without an update, between steps.
  Evaluator& evaluator() { return *evaluator_; }

  ModelRank& model() { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  const schedules::Plan& plan() const;
  const TimelineRecorder& timeline() const { return recorder_; }
  const comm::Mesh& mesh() const { return mesh_; }
  Pipeline& pipeline() { return *pipeline_; }
  // The buckets of the last step that were reduced, in order.
  const std::vector<TimedReduction>& reductions() const;
  // A flat buffer of a whole stage, from this rank's (not sharded: that itself) of values, gradients or optimizer state. Sharded, all
  // data-parallel ranks call it, and it holds until the next call.
  const float* whole(StageId stage, const float* local);

 private:
  // A batch's share of this rank: sequences [begin, begin + count). Null: none.
  struct Share {
    const Batch* batch = nullptr;
    int64_t begin = 0, count = 0;
    uint64_t salt = 0;  // of dropout
  };
  Stretch part_of(int64_t sequences) const;  // of this rank's copy of the model
  Share share_of(const Batch& batch) const;
  void check_settings(int64_t batch_size, int64_t length) const;
  void make_reducer();
  double run_share(const Share& share, double weight, bool last);
  // same_batches: all ranks have given the same.
  StepResult update(std::span<const Share> shares, int64_t valid, double factor, double lr, bool same_batches);
  void apply(double grad_norm);
  // Where the first NaN or infinity of the step comes from: "transformer.h.3.mlp.c_fc on rank 1". All ranks call it.
  std::string find_not_finite(std::span<const Share> shares, bool same_batches);
  void fail(const std::exception& error);
  void add_times(StepResult& result) const;

  TrainerOptions options_;
  comm::Mesh mesh_;
  std::shared_ptr<const Graph> graph_;  // this tensor-parallel rank's
  std::unique_ptr<ModelRank> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<TiedGradients> tied_gradients_;
  std::unique_ptr<GradientNorm> norm_;
  std::unique_ptr<Pipeline> pipeline_;  // behind all that works on its stream: at the end it waits for that
  std::unique_ptr<Evaluator> evaluator_;
  TimelineRecorder recorder_{TimelineRecorder::Clock::time_point{}};  // one zero for all ranks of a machine
  std::unique_ptr<comm::Communicator> reducing_;                      // of the data-parallel ranks, for the reducer alone
  std::unique_ptr<comm::Communicator> statistics_;                    // the same ranks, for ops that measure over all of them; null: none
  std::vector<double> figures_;                                       // of a step, to be added up over the ranks
  std::unique_ptr<Reducer> reducer_;                                  // null: nothing to reduce
  // Batches whose gradients are there already, and the weight of their losses.
  struct Held {
    int64_t batches = 0, valid = 0, tokens = 0;
    double loss = 0, weight = 0;
  } held_;
  // Of the step under way, for updates in the backward.
  double lr_ = 0, scale_ = 1;
  uint64_t key_ = 0;  // of its dropout
  double idle_ = 0;
  std::atomic<bool> ready_to_update_{false};
};

}  // namespace ppengine::engine
