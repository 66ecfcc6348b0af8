// LoopedBFS (https://arxiv.org/abs/2211.05953): breadth first, every local stage runs all its microbatches in turn.
#include <ppengine/schedules/generators/generators.hpp>

namespace ppengine::schedules::generators {

Plan looped_bfs(const PlanRequest& request) {
  Plan plan = empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    Row row(plan.of(rank));
    const auto stages = local_stages(plan, rank);
    row.reserve(2L * plan.microbatches * static_cast<long>(stages.size()) + rank + 2L * (plan.ranks - 1 - rank));
    // 1. Wait for the first activation; idle cells stand where PyTorch's tables have them.
    row.idle(rank);
    // 2. Forwards, lower stages first.
    for (auto stage = stages.begin(); stage != stages.end(); ++stage)
      for (int mb = 0; mb < plan.microbatches; ++mb) row.forward(*stage, mb);
    // 3. Wait for the first gradient: two steps for every rank on its way.
    row.idle(2 * (plan.ranks - 1 - rank));
    // 4. Backwards, stages and microbatches in reverse.
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage)
      for (int mb = plan.microbatches - 1; mb >= 0; --mb) row.backward(*stage, mb);
  }
  return plan;
}

}  // namespace ppengine::schedules::generators
