// Local search on a plan: small changes of the order that shorten it.
#pragma once

#include <ppengine/schedules/costs.hpp>
#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

// Moves single actions within their row, keeping what does not lengthen the makespan. Deterministic, with a bounded
// number of tries; plans too large for it come back unchanged. The result is valid and holds at most `memory_limit`
// live microbatches a rank (0: any).
Plan improve_order(const Plan& plan, const Costs& costs, int memory_limit);

}  // namespace ppengine::schedules
