// Interleaved zero bubble (https://arxiv.org/abs/2401.10241); with one stage per rank this is ZB1P. The backward is
// split, and weight gradients fill the places where a rank would wait.
#include <ppengine/schedules/generators/generators.hpp>
#include <ppengine/schedules/generators/interleaved.hpp>

namespace ppengine::schedules::generators {
namespace {

std::vector<Action> rank_order(const Interleaving& order, int rank) {
  std::vector<Action> actions;
  Row row(actions);
  const long total = order.total();
  const int warm_up = order.warm_up(rank, 1);
  row.reserve(3 * total + order.ranks);
  long weights = 0;  // how many W have run: the oldest pending one is the next
  auto forward = [&](long k) { row.forward(order.forward_stage(rank, k), order.microbatch(k)); };
  auto weight = [&] {
    row.backward_weight(order.backward_stage(rank, weights), order.microbatch(weights));
    ++weights;
  };
  auto backward = [&](long k) {
    row.backward_input(order.backward_stage(rank, k), order.microbatch(k));
    if (k >= rank) weight();
  };

  // 1. Warm-up, then wait for the first gradient.
  row.idle(rank);
  for (long k = 0; k < warm_up; ++k) forward(k);
  if (warm_up > 0) row.idle(order.ranks - rank - 1);
  // 2. Steady state: the first `rank` backwards leave their W for later.
  for (long k = warm_up; k < total; ++k) {
    forward(k);
    backward(k - warm_up);
  }
  // 3. Cool-down: the remaining backwards, then the remaining weights.
  for (long k = total - warm_up; k < total; ++k) backward(k);
  while (weights < total) weight();
  return actions;
}

// Steps all ranks in lockstep and inserts an idle cell where a forward's input is not made in an earlier step: only
// these cells are added, the order is not changed. A stage's forwards run in order, so a count says which have run.
void insert_waits(Plan& plan, const std::vector<std::vector<Action>>& rows) {
  std::vector<std::size_t> next(rows.size(), 0);
  std::vector<int> forwards(static_cast<std::size_t>(plan.stages), 0);
  std::vector<int> done_in_step;
  for (bool running = true; running;) {
    running = false;
    done_in_step.clear();
    for (std::size_t rank = 0; rank < rows.size(); ++rank) {
      if (next[rank] == rows[rank].size()) continue;
      running = true;
      const Action& a = rows[rank][next[rank]];
      const bool is_forward = a.type == ActionType::forward;
      if (is_forward && a.stage > 0 && forwards[a.stage - 1U] <= static_cast<int>(a.microbatch)) {
        plan.actions[rank].push_back({});
        continue;
      }
      if (is_forward) done_in_step.push_back(a.stage);
      plan.actions[rank].push_back(a);
      ++next[rank];
    }
    for (const int stage : done_in_step) ++forwards[static_cast<std::size_t>(stage)];
  }
}

}  // namespace

Plan interleaved_zero_bubble(const PlanRequest& request) {
  Plan plan = empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank);
  const Interleaving order(request);
  std::vector<std::vector<Action>> rows;
  rows.reserve(static_cast<std::size_t>(plan.ranks));
  for (int rank = 0; rank < plan.ranks; ++rank) {
    rows.push_back(rank_order(order, rank));
    plan.of(rank).reserve(rows.back().size() + static_cast<std::size_t>(plan.ranks));
  }
  insert_waits(plan, rows);
  return plan;
}

}  // namespace ppengine::schedules::generators
