// Interleaved 1F1B (https://arxiv.org/abs/2104.04473): several stages per rank, depth first, one forward and one
// backward.
#include <fmt/format.h>

#include <algorithm>

#include <ppengine/schedules/generators/generators.hpp>
#include <ppengine/schedules/generators/interleaved.hpp>

namespace ppengine::schedules::generators {

Interleaving::Interleaving(const PlanRequest& request)
    : ranks(request.ranks),
      per_rank(request.stages / request.ranks),
      microbatches(request.microbatches),
      rounds(std::max(1, request.microbatches / request.ranks)),
      per_round(request.microbatches / rounds) {
  if (microbatches % rounds != 0)
    throw ConfigError(fmt::format("{} microbatches cannot be spread evenly over {} rounds of {} ranks; use {} or {}", microbatches, rounds,
                                  ranks, microbatches - microbatches % rounds, microbatches + rounds - microbatches % rounds));
}

int Interleaving::warm_up(int rank, int hop) const {
  const long forwards = static_cast<long>(per_rank - 1) * per_round + static_cast<long>(hop) * (ranks - 1 - rank);
  return static_cast<int>(std::min(forwards, total()));
}

Plan interleaved_1f1b(const PlanRequest& request) {
  Plan plan = empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank);
  const Interleaving order(request);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    Row row(plan.of(rank));
    const long total = order.total();
    const int warm_up = order.warm_up(rank, 2);
    // The step of the first backward, as PyTorch's tables align the ranks.
    const int wait = plan.stages + 2 * (plan.ranks - 1 - rank) - (warm_up + rank);
    row.reserve(2 * total + rank + std::max(wait, 0) + warm_up);
    auto forward = [&](long k) { row.forward(order.forward_stage(rank, k), order.microbatch(k)); };
    auto backward = [&](long k) { row.backward(order.backward_stage(rank, k), order.microbatch(k)); };

    // 1. Warm-up, then wait for the first gradient.
    row.idle(rank);
    for (long k = 0; k < warm_up; ++k) forward(k);
    if (warm_up > 0) row.idle(wait);
    // 2. Steady state.
    for (long k = warm_up; k < total; ++k) {
      forward(k);
      backward(k - warm_up);
    }
    // 3. Cool-down: the ranks behind still run a forward between two backwards.
    for (long k = total - warm_up; k < total; ++k) {
      row.idle();
      backward(k);
    }
  }
  return plan;
}

}  // namespace ppengine::schedules::generators
