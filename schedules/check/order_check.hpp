// The last rule of validation: a plan whose rows are fine one by one can still wait in a circle across ranks.
#pragma once

#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

// Runs the plan without time: sends leave at once, receives and computations wait for their input. Throws PlanError
// with the cycle if it does not finish. The plan must keep all other rules.
void check_order_across_ranks(const Plan& plan);

}  // namespace ppengine::schedules
