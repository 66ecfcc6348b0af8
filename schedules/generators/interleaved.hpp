// What Interleaved1F1B and InterleavedZeroBubble share: which stage and microbatch a rank's k-th forward or backward
// is.
#pragma once

#include <ppengine/schedules/registry.hpp>

namespace ppengine::schedules::generators {

struct Interleaving {
  int ranks, per_rank, microbatches, rounds, per_round;

  // Throws ConfigError where the microbatches do not fill the rounds.
  explicit Interleaving(const PlanRequest& request);

  long total() const { return static_cast<long>(per_rank) * microbatches; }
  // Forwards before the first backward; `hop` more for each rank between this one and the last.
  int warm_up(int rank, int hop) const;
  // Each round gives per_round microbatches to every local stage in turn, backwards from the last one.
  int forward_stage(int rank, long k) const { return local(k) * ranks + rank; }
  int backward_stage(int rank, long k) const { return (per_rank - 1 - local(k)) * ranks + rank; }
  int microbatch(long k) const {
    return static_cast<int>(k / (static_cast<long>(per_round) * per_rank)) * per_round + static_cast<int>(k % per_round);
  }

 private:
  int local(long k) const { return static_cast<int>((k / per_round) % per_rank); }
};

}  // namespace ppengine::schedules::generators
