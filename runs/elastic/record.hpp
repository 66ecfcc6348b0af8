// What the ranks of an elastic run share with each other and with their launcher: a file in /dev/shm that outlives each of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <optional>

namespace ppengine::runs {

class ElasticRecord {
 public:
  static constexpr int most_ranks = 4096;

  // What a step came to: enough for a rank that has its gradients to make the same update.
  struct Outcome {
    double loss = 0, grad_norm = 0;
  };
  // Who writes one part of the model's state down after a loss. A part is what one rank of a replica has.
  struct Claim {
    std::atomic<std::int32_t> owner;  // its process; 0: nobody
    std::atomic<std::int32_t> done;
  };
  struct Shared {
    std::atomic<std::uint64_t> decision;             // of the newest step that was decided: step, who did, and whether it counts
    std::atomic<std::int64_t> step;                  // newest that any rank has completed
    std::atomic<std::int64_t> told;                  // newest that the listener has heard of
    std::atomic<std::int64_t> finished;              // newest whose evaluation and checkpoint are done
    std::atomic<std::int32_t> regroup;               // set by the launcher: end after the next step, so that a replica can join
    std::atomic<std::int32_t> trains;                // ranks have found each other and loaded what there is to load
    std::atomic<std::int32_t> over;                  // nothing is left to do
    std::atomic<std::int8_t> survivors[most_ranks];  // ranks that have noticed the loss of another
    Outcome outcomes[most_ranks];                    // by rank, of the step that it has committed last
    Claim claims[most_ranks];                        // by part
  };

  // Zeros where the file is new.
  explicit ElasticRecord(const std::filesystem::path& file);
  ~ElasticRecord();
  ElasticRecord(const ElasticRecord&) = delete;
  Shared* operator->() const { return shared_; }

  // All ranks have the gradients of the step: from now on it counts, and each makes its update. False where another rank has given the
  // step up before.
  bool commit(std::int64_t step, int rank, const Outcome& outcome);
  // A rank that waits for the others to commit has lost one. The outcome where one of them has committed all the same; otherwise the step
  // is given up, for all ranks.
  std::optional<Outcome> give_up(std::int64_t step);

 private:
  Shared* shared_ = nullptr;
};

}  // namespace ppengine::runs
