// 1F1B: as many forwards ahead as there are stages to come, then one backward and one forward by turns.
#include <algorithm>

#include <ppengine/schedules/generators/generators.hpp>

namespace ppengine::schedules::generators {

Plan one_forward_one_backward(const PlanRequest& request) {
  Plan plan = empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank);
  const int m = plan.microbatches;
  for (int stage = 0; stage < plan.stages; ++stage) {
    Row row(plan.of(plan.rank_of(stage)));
    row.reserve(2L * m);
    const int warm_up = std::min(m, plan.stages - stage);
    // 1. Warm-up.
    for (int mb = 0; mb < warm_up; ++mb) row.forward(stage, mb);
    // 2. Steady state.
    for (int mb = warm_up; mb < m; ++mb) {
      row.backward(stage, mb - warm_up);
      row.forward(stage, mb);
    }
    // 3. Cool-down.
    for (int mb = m - warm_up; mb < m; ++mb) row.backward(stage, mb);
  }
  return plan;
}

}  // namespace ppengine::schedules::generators
