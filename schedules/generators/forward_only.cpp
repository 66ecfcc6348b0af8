// Inference: forwards only. Ranks with several stages take the microbatches in groups of the number of ranks, depth
// first, so that no rank waits and few messages are under way.
#include <algorithm>

#include <ppengine/schedules/generators/generators.hpp>

namespace ppengine::schedules::generators {

Plan forward_only(const PlanRequest& request) {
  Plan plan = empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    Row row(plan.of(rank));
    const auto stages = local_stages(plan, rank);
    row.reserve(static_cast<long>(plan.microbatches) * static_cast<long>(stages.size()));
    for (int group = 0; group < plan.microbatches; group += plan.ranks)
      for (const int stage : stages)
        for (int mb = group; mb < std::min(group + plan.ranks, plan.microbatches); ++mb) row.forward(stage, mb);
  }
  return plan;
}

}  // namespace ppengine::schedules::generators
