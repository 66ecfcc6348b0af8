// The text of a deadlock: one readable cycle of ranks that wait for each other.
#pragma once

#include <vector>

#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

// A rank that is stuck: at which action, and what has to happen first. `waits_for.stage` says which rank has to do it.
struct Stuck {
  int rank = 0;
  std::size_t index = 0;
  Action waits_for;
};

// Throws a PlanError with the cycle of waiting actions, each with rank, column and text. `stuck` has one entry per
// stuck rank.
[[noreturn]] void report_deadlock(const Plan& plan, const std::vector<Stuck>& stuck);

// What the compute action `a` needs from another stage: the F of the stage before, or the B (or I) of the stage after.
Action input_of(const Action& a);
// The other end of a send or receive.
Action counterpart(const Action& message);

}  // namespace ppengine::schedules
