// A plan by simulation: whenever a rank is free it takes the best of what is ready. What is best is the policy.
#pragma once

#include <optional>

#include <ppengine/schedules/registry.hpp>

namespace ppengine::schedules {

struct Policy {
  enum class Prefer { backward, forward, alternate };  // between a ready I and a ready F
  Prefer prefer = Prefer::backward;
  bool deep_first = true;  // between stages of one kind: the later one, or the older microbatch
  bool split = true;       // I and W apart, or B
  double patience = 0;     // a W runs only if the next I or F is not known to be ready within this share of W's cost
  int limit = 0;           // live microbatches a rank may hold; 0: all
  double limit_slope = 0;  // ranks further down the pipeline may hold this much less each, as in 1F1B

  std::string text() const;
};

// The request needs its stage_rank. Nothing if the policy's limit leaves a rank less than one microbatch per stage.
std::optional<Plan> list_schedule(const PlanRequest& request, const Policy& policy);

}  // namespace ppengine::schedules
