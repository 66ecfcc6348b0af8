// What ranks did when, in a measured run: as a timeline, and what its actions cost, so that the same run can be simulated and drawn beside
// it.
#pragma once

#include <string>
#include <vector>

#include <ppengine/schedules/plan.hpp>
#include <ppengine/schedules/timeline.hpp>

namespace ppengine::engine {

struct TimedAction {
  schedules::Action action;
  bool overlapped = false;    // first part of an OVERLAP_F_B; the next entry is the second, with the same times
  double start = 0, end = 0;  // seconds since the recorder's zero
};

// One bucket of gradients on its way, in seconds of the same clock.
struct TimedReduction {
  schedules::StageId stage = {};
  std::size_t bucket = 0;
  std::size_t bytes = 0;      // of its gradients
  std::size_t sent = 0;       // bytes that were summed over the ranks: fewer where rows are zero everywhere
  double start = 0, end = 0;  // from when this rank's gradients were final and the bucket before was done
};

// The last run of the plan in each row; rows may hold several, one after the other. One row per rank of the plan.
std::vector<std::vector<TimedAction>> last_run(const schedules::Plan& plan, const std::vector<std::vector<TimedAction>>& rows);

// Mean times of one run in milliseconds by stage and type. Where a stage has B only, its halves count the same.
schedules::Costs measured_costs(const schedules::Plan& plan, const std::vector<std::vector<TimedAction>>& run);

// In milliseconds from the first start.
schedules::Timeline measured_timeline(const std::vector<std::vector<TimedAction>>& run, const std::string& title);
// The plan in time as it would run with these costs, in milliseconds too.
schedules::Timeline simulated_timeline(const schedules::Plan& plan, const schedules::Costs& costs, const std::string& title);

}  // namespace ppengine::engine
