// What a rank did when: recorded around every action of the plan, for idle shares, traces and pictures.
#pragma once

#include <chrono>
#include <vector>

#include <ppengine/engine/graph/ids.hpp>
#include <ppengine/schedules/executor.hpp>

namespace ppengine::engine {

struct TimedAction {
  schedules::Action action;
  bool overlapped = false;    // first part of an OVERLAP_F_B; the next entry is the second, with the same times
  double start = 0, end = 0;  // seconds since the recorder's zero
};

// One bucket of gradients on its way, in seconds of the same clock.
struct TimedReduction {
  StageId stage = {};
  size_t bucket = 0;
  size_t bytes = 0;           // of its gradients
  size_t sent = 0;            // bytes that were summed over the ranks: fewer where rows are zero everywhere
  double start = 0, end = 0;  // from when this rank's gradients were final and the bucket before was done
};

class TimelineRecorder final : public schedules::ActionObserver {
 public:
  using Clock = std::chrono::steady_clock;
  // All ranks of a process share one zero.
  explicit TimelineRecorder(Clock::time_point zero = Clock::now()) : zero_(zero) {}

  void clear() { actions_.clear(); }
  void begin(const schedules::Position& position) override;
  // The message that the action waited for is there: what comes now is work.
  void work_begins() { started_ = now(); }
  void end(const schedules::Position& position) override;

  const std::vector<TimedAction>& actions() const { return actions_; }
  // Time in forwards and backwards, from the first action's start to the last one's end.
  double busy() const;
  double span() const;

 private:
  double now() const { return std::chrono::duration<double>(Clock::now() - zero_).count(); }
  Clock::time_point zero_;
  double started_ = 0;
  std::vector<TimedAction> actions_;
};

}  // namespace ppengine::engine
