// TimelineRecorder: what a rank does when, recorded around every action of the plan.
#pragma once

#include <chrono>
#include <vector>

#include <ppengine/engine/measure/timeline.hpp>
#include <ppengine/schedules/executor.hpp>

namespace ppengine::engine {

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
