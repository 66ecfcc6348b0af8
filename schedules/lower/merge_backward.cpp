// merge: an I followed by the W of the same pair is a full backward, which can be faster than its halves.
#include <ppengine/schedules/lower.hpp>

namespace ppengine::schedules {

Plan merge_backward(Plan plan) {
  for (auto& row : plan.actions) {
    std::erase_if(row, [](const Action& a) { return a.type == ActionType::idle; });
    std::size_t kept = 0;
    for (std::size_t i = 0; i < row.size(); ++i) {
      Action a = row[i];
      const bool part_of_overlap = i > 0 && row[i - 1].joined;
      if (a.type == ActionType::backward_input && !part_of_overlap && i + 1 < row.size() &&
          row[i + 1] == make_action(a.stage, ActionType::backward_weight, static_cast<int>(a.microbatch))) {
        a.type = ActionType::backward;
        ++i;
      }
      row[kept++] = a;
    }
    row.resize(kept);
  }
  return plan;
}

}  // namespace ppengine::schedules
