// Reducer: sums gradients over the data-parallel ranks bucket by bucket, while the backward goes on. The pipeline tells it when gradients
// are final; a thread of its own carries full buckets through the hook, always in the order of buckets.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <ppengine/engine/gradients/gradient_norm.hpp>
#include <ppengine/engine/gradients/gradient_sink.hpp>
#include <ppengine/engine/gradients/hooks.hpp>
#include <ppengine/engine/gradients/row_gradients.hpp>
#include <ppengine/engine/measure/timeline.hpp>

namespace ppengine::engine {

class Reducer final : public GradientSink {
 public:
  struct Options {
    comm::Communicator* data = nullptr;  // used by nobody else; null: one rank, nothing to sum
    std::shared_ptr<GradientHook> hook;
    // After a bucket is reduced, on the reducer's thread: an optimizer's step, say. Not for weights that several stages use.
    std::function<void(StageId stage, std::size_t bucket, ops::Stream& stream)> reduced;
  };
  Reducer(ModelRank& model, GradientNorm& norm, Options options);
  ~Reducer() override;

  // A new backward; the one before is finished. add: sharded gradients are added to those that are there. last: after it the gradients are
  // complete, and are added to the norm (but for tied weights') and handed on. rows(): what the gradients will be made of.
  void begin(bool add, bool last);
  RowGradients& rows() { return rows_; }
  // The pipeline's calls. Error that names the parameter whose gradient comes twice, or not at all.
  void final_gradients(StageId stage, std::span<const ParameterId> parameters, ops::Stream& stream) override;
  void stage_done(StageId stage) override;
  // Until all that was handed over is reduced. Throws what went wrong on the way.
  void finish();
  void wait_reduced(StageId stage) override;
  // After an error elsewhere: what is under way will not be finished, and nobody must wait for it.
  void cancel(const std::string& reason);

  // Of the last step, after finish().
  const std::vector<TimedReduction>& timings() const { return timings_; }

 private:
  struct Tracked {
    const ParameterStore* store = nullptr;
    std::vector<GradientBucket> buckets;  // those that are reduced
    std::vector<std::size_t> missing;     // by bucket: gradients that are not final yet
    std::vector<char> final;              // by range
    std::size_t next = 0;                 // bucket to be handed over
  };
  struct Job {
    StageId stage;  // none: the ranks tell each other which rows they touch
    std::size_t bucket;
    ops::Event ready;
  };
  void reset(Tracked& stage);
  void run();
  void process(const Job& job);
  // Sums a bucket over the ranks; the bytes that were.
  std::size_t reduce(const GradientBucket& bucket, std::size_t index);
  void wait_until(std::unique_lock<std::mutex>& lock, const std::function<bool()>& condition);

  ModelRank& model_;
  GradientNorm& norm_;
  Options options_;
  std::map<StageId, Tracked> stages_;
  bool add_ = false, last_ = true;
  RowGradients rows_;
  float* packed_ = nullptr;  // the bucket's rows that are not zero, where these alone were summed
  std::size_t packed_count_ = 0;
  ops::Buffer part_;    // sharded and adding: what has just been reduced
  ops::Stream stream_;  // the thread's; behind the memory, which it waits for at the end
  std::vector<TimedReduction> timings_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;  // the first one is under way
  std::exception_ptr error_;
  bool closing_ = false, cancelled_ = false;
  std::thread thread_;
};

}  // namespace ppengine::engine
