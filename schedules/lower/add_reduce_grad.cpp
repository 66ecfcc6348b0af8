// reduce_grad: right after a stage's last weight gradient.
#include <ppengine/schedules/lower.hpp>

namespace ppengine::schedules {

Plan add_reduce_grad(Plan plan) {
  std::vector<int> backwards(static_cast<std::size_t>(plan.stages), 0);
  for (int rank = 0; rank < plan.ranks; ++rank) {
    std::vector<Action> out;
    auto& row = plan.of(rank);
    out.reserve(row.size() + local_stages(plan, rank).size());
    for (const Action& a : row) {
      if (a.type == ActionType::idle) continue;
      out.push_back(a);
      // The backward of an overlap is its second part: what follows it stands after the whole cell.
      if (gives_weight_gradient(a.type) && ++backwards[a.stage] == plan.microbatches)
        out.push_back(make_action(a.stage, ActionType::reduce_grad));
    }
    row = std::move(out);
  }
  plan.format = PlanFormat::compute_comms;
  return plan;
}

}  // namespace ppengine::schedules
