// Ranks that can go on: what runs a plan, with time (simulate.cpp) or without (order_check.cpp), advances one after the other, and each
// wakes those that wait for it. So the work is linear in the actions.
#pragma once

#include <vector>

#include <ppengine/base/ids.hpp>

namespace ppengine::schedules {

template <class T>
using PerRank = IdVector<int, T>;

class RunnableRanks {
 public:
  explicit RunnableRanks(int ranks) : queued_(static_cast<std::size_t>(ranks)) {}

  void wake(int rank) {
    if (queued_[rank]) return;
    queued_[rank] = true;
    runnable_.push_back(rank);
  }

  // Begins with all ranks; until none can go on.
  void run(const auto& advance) {
    for (int rank : queued_.ids()) wake(rank);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      queued_[rank] = false;
      advance(rank);
    }
  }

 private:
  PerRank<bool> queued_;
  std::vector<int> runnable_;
};

}  // namespace ppengine::schedules
