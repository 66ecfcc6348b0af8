// What a measured run looks like as a timeline, and what its actions cost: the same run can then be simulated and drawn beside it.
#pragma once

#include <span>
#include <vector>

#include <ppengine/engine/measure/timeline.hpp>
#include <ppengine/schedules/timeline.hpp>

namespace ppengine::engine {

// The last run of the plan in each row; rows may hold several, one after the other. One row per rank of the plan.
std::vector<std::vector<TimedAction>> last_run(const schedules::Plan& plan, const std::vector<std::vector<TimedAction>>& rows);

// Mean times of one run in milliseconds by stage and type. Where a stage has B only, its halves count the same.
schedules::Costs measured_costs(const schedules::Plan& plan, const std::vector<std::vector<TimedAction>>& run);

// In milliseconds from the first start.
schedules::Timeline measured_timeline(const std::vector<std::vector<TimedAction>>& run, const std::string& title);
// The plan in time as it would run with these costs, in milliseconds too.
schedules::Timeline simulated_timeline(const schedules::Plan& plan, const schedules::Costs& costs, const std::string& title);

}  // namespace ppengine::engine
