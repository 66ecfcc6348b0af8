// What a Trainer is made of.
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ppengine/engine/evaluator.hpp>
#include <ppengine/engine/gradients/gradient_norm.hpp>
#include <ppengine/engine/gradients/reducer.hpp>
#include <ppengine/engine/gradients/tied_gradients.hpp>
#include <ppengine/engine/measure/recorder.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/trainer.hpp>
#include <ppengine/engine/weights/optimizer.hpp>

namespace ppengine::engine {

struct Trainer::Impl {
  Impl(std::shared_ptr<const Graph> graph, const TrainerOptions& options, comm::Communicator& world, std::int64_t batch_size,
       std::int64_t length);

  StepResult step(std::span<const Batch> batches, double lr);
  void accumulate(const Batch& batch);
  std::optional<StepResult> step_own(const Batch* mine, double lr, Uneven uneven);
  void finish_update(double grad_norm);
  void synchronize();
  void check_replicas();
  const std::vector<TimedReduction>& reductions() const;

  // A batch's share of this rank: sequences [begin, begin + count). Null: none.
  struct Share {
    const Batch* batch = nullptr;
    std::int64_t begin = 0, count = 0;
    std::uint64_t salt = 0;  // of dropout
  };
  Stretch part_of(std::int64_t sequences) const;  // of this rank's copy of the model
  Share share_of(const Batch& batch) const;
  void check_settings(std::int64_t batch_size, std::int64_t length) const;
  void make_reducer();
  double run_share(const Share& share, double weight, bool last);
  // same_batches: all ranks have given the same.
  StepResult update(std::span<const Share> shares, std::int64_t valid, double factor, double lr, bool same_batches);
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
    std::int64_t batches = 0, valid = 0, tokens = 0;
    double loss = 0, weight = 0;
  } held_;
  // Of the step under way, for updates in the backward.
  double lr_ = 0, scale_ = 1;
  std::uint64_t key_ = 0;  // of its dropout
  double idle_ = 0;
  std::atomic<bool> ready_to_update_{false};
};

}  // namespace ppengine::engine
