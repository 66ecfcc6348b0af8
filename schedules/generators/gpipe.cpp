// GPipe: all forwards, then all backwards.
#include <ppengine/schedules/generators/generators.hpp>

namespace ppengine::schedules::generators {

Plan gpipe(const PlanRequest& request) {
  Plan plan = empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    Row row(plan.of(rank));
    const auto stages = local_stages(plan, rank);
    row.reserve(2L * plan.microbatches * static_cast<long>(stages.size()));
    // 1. All forwards. A placement from a file may give a rank several stages: lower ones first.
    for (auto stage = stages.begin(); stage != stages.end(); ++stage)
      for (int mb = 0; mb < plan.microbatches; ++mb) row.forward(*stage, mb);
    // 2. All backwards, in forward order.
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage)
      for (int mb = 0; mb < plan.microbatches; ++mb) row.backward(*stage, mb);
  }
  return plan;
}

}  // namespace ppengine::schedules::generators
