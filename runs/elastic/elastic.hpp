// One rank of an elastic run: when another rank is lost, the state of one replica is kept in memory and the launcher starts all ranks again
// from there. docs/trust.md has the whole story.
//
// All survivors keep the state of the same step. A step has two phases: first all ranks get the sum of all gradients, and nothing changes;
// then one word in shared memory, which is set once, says whether the step counts (a rank knows that all have their gradients) or is given
// up (a rank has lost another before). Where it counts, every survivor makes the update; where not, none does.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>

#include <ppengine/runs/elastic/kept_state.hpp>
#include <ppengine/runs/elastic/record.hpp>

namespace ppengine::runs {

class Elastic {
 public:
  // The folder that the launcher has made for the run; `start`: which start of the ranks this is, from 0.
  Elastic(std::filesystem::path folder, int start, int rank, int parts);
  ~Elastic();
  Elastic(const Elastic&) = delete;

  // Called by the trainer between a step's two phases. CommError where the step was given up.
  void commit(double loss, double grad_norm);

  // The state that an earlier start has left; nothing: begin as usual. All ranks find the same.
  std::optional<KeptStep> found() const { return found_; }
  void load(engine::Trainer& trainer) const { load_kept(kept_, trainer); }

  // From now on survive() has something to keep: where the run is.
  void guard(engine::Trainer& trainer, const KeptStep& now);
  // Before a step: where the data is behind it. After it: what it came to.
  void begin(const models::DataPosition& behind);
  void completed(const engine::StepResult& result);
  void set_best(double loss) { now_.best = loss; }
  // On the first rank: a listener has heard of the step; its evaluation and checkpoint are done.
  void told(std::int64_t step) { record_->told = step; }
  void finished(std::int64_t step) { record_->finished = step; }
  bool was_told(std::int64_t step) const { return record_->told >= step; }
  bool was_finished(std::int64_t step) const { return record_->finished >= step; }
  bool regroup_requested() const { return record_->regroup != 0; }

  // A rank was lost, or all are to start again in another number: decides on the step, and keeps this rank's part of it unless another
  // replica does. Returns when all parts are kept, or none can be. Any thread may call it; the first does the work.
  void survive(std::chrono::milliseconds deadline);
  // The run has ended, well or by an error of its own: nothing to survive any more.
  void over();
  void release();

 private:
  void keep_part(std::chrono::steady_clock::time_point until);

  std::filesystem::path folder_, kept_;
  ElasticRecord record_;
  int start_, rank_, parts_;
  std::optional<KeptStep> found_;
  engine::Trainer* trainer_ = nullptr;
  KeptStep now_, next_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool updating_ = false, survived_ = false, stepped_ = false;
};

}  // namespace ppengine::runs
