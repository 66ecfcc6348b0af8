// `auto`: searches for the order with the least makespan for given costs and a limit on live microbatches.
#pragma once

#include <string>

#include <ppengine/schedules/registry.hpp>

namespace ppengine::schedules {

struct AutoPlan {
  Plan plan;
  double makespan = 0;
  std::string origin;  // the named schedule or the search policy that it came from
  std::string limit;   // what keeps it from being shorter: "the memory limit of 4 live microbatches (without it: 117)", ...
};

// Never worse than the best named schedule that fits the limit. Without a placement in the request, loop and V are both
// tried. Takes a time linear in the number of actions, with a bounded number of tries.
AutoPlan make_auto_plan(const PlanRequest& request);

}  // namespace ppengine::schedules
