// ZB-V (https://arxiv.org/abs/2401.10241, section 6): two stages per rank in a V, no bubble when F, I and W take
// equally long.
#include <algorithm>

#include <ppengine/schedules/generators/generators.hpp>

namespace ppengine::schedules::generators {

Plan zbv_zero_bubble(const PlanRequest& request) {
  Plan plan = empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank);
  const int p = plan.ranks, m = plan.microbatches;
  const int n = std::max(2 * p - 1, m);  // what fills the pipeline; actions of microbatches that do not exist are idle cells
  for (int rank = 0; rank < p; ++rank) {
    Row row(plan.of(rank));
    row.reserve(6L * n + rank);
    const int chunk[2] = {rank, 2 * p - 1 - rank};
    int forwards[2] = {0, 0}, inputs[2] = {0, 0}, weights[2] = {0, 0};
    auto add = [&](int c, ActionType type, int& count) {
      if (count < m)
        row.add(chunk[c], type, count);
      else
        row.idle();
      ++count;
    };
    auto F = [&](int c) { add(c, ActionType::forward, forwards[c]); };
    auto I = [&](int c) { add(c, ActionType::backward_input, inputs[c]); };
    auto W = [&](int c) { add(c, ActionType::backward_weight, weights[c]); };

    // 1. Warm-up: down the V, then up and down by turns, then the first backwards at the V's end.
    row.idle(rank);
    for (int i = 0; i < 2 * (p - rank) - 1; ++i) F(0);
    for (int i = 0; i < rank; ++i) F(1), F(0);
    for (int i = 0; i < p - rank; ++i) F(1), I(1), W(1);
    // 2. Steady state, while forwards remain.
    while (forwards[1] < forwards[0] || forwards[0] < n) {
      if (forwards[0] < n) F(0);
      I(0), W(0);
      F(1), I(1), W(1);
    }
    // 3. Cool-down: input gradients first, other ranks wait for them.
    for (int i = 0; i < rank; ++i) I(0), I(1);
    for (int i = 0; i < p - rank; ++i) I(0), W(0);
    // 4. The remaining weights.
    while (weights[1] < inputs[1]) W(1);
    while (weights[0] < inputs[0]) W(0);
  }
  return plan;
}

}  // namespace ppengine::schedules::generators
