// A simulated plan as JSON, for other programs.
#pragma once

#include <string>

#include <ppengine/schedules/simulate.hpp>

namespace ppengine::schedules {

struct ReportOptions {
  bool actions = true;  // every action with start and end
  std::string limit;    // what keeps `auto` from a shorter makespan; empty: left out
};

// {"makespan":..,"idle_share":..,"ranks":[{"idle_share":..,"peak_live_microbatches":..,"actions":[{"action":"0F0","start":..,
// "end":..}]}]} and, beside these, the same measured by the longest span, peak bytes and the critical path.
std::string to_json(const Plan& plan, const Simulation& simulation, const Costs& costs, const ReportOptions& options = {});

}  // namespace ppengine::schedules
