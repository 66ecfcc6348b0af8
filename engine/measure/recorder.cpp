// What a rank did when.
#include <ppengine/engine/measure/recorder.hpp>

#include <algorithm>

namespace ppengine::engine {

void TimelineRecorder::begin(const schedules::Position&) { started_ = now(); }

void TimelineRecorder::end(const schedules::Position& position) {
  const double finished = now();
  actions_.push_back({position.cell[0], position.cell[0].joined, started_, finished});
  if (position.cell[0].joined) actions_.push_back({position.cell[1], false, started_, finished});
}

double TimelineRecorder::busy() const {
  double total = 0;
  for (const TimedAction& one : actions_)
    if (schedules::is_compute(one.action.type) && !one.overlapped) total += one.end - one.start;  // a pair counts once
  return total;
}

double TimelineRecorder::span() const { return actions_.empty() ? 0.0 : actions_.back().end - actions_.front().start; }

}  // namespace ppengine::engine
