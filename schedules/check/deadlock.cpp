// The text of a deadlock.
#include <ppengine/schedules/check/deadlock.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace ppengine::schedules {

Action input_of(const Action& a) {
  const bool forward = a.type == ActionType::forward;
  return make_action(forward ? a.stage - 1 : a.stage + 1, forward ? ActionType::forward : ActionType::backward,
                     static_cast<int>(a.microbatch));
}

Action counterpart(const Action& message) {
  ActionType type = ActionType::idle;
  switch (message.type) {
    case ActionType::send_forward:
      type = ActionType::recv_forward;
      break;
    case ActionType::recv_forward:
      type = ActionType::send_forward;
      break;
    case ActionType::send_backward:
      type = ActionType::recv_backward;
      break;
    default:
      type = ActionType::send_backward;
      break;
  }
  return make_action(peer_stage(message), type, static_cast<int>(message.microbatch));
}

void report_deadlock(const Plan& plan, const std::vector<Stuck>& stuck) {
  auto at_rank = [&](int rank) { return std::find_if(stuck.begin(), stuck.end(), [&](const Stuck& s) { return s.rank == rank; }); };
  // Follow the waiting from the first stuck rank until a rank comes up again: from there on it is the cycle.
  std::vector<int> path;
  for (auto s = stuck.begin(); s != stuck.end() && std::find(path.begin(), path.end(), s->rank) == path.end();
       s = at_rank(plan.rank_of(s->waits_for.stage)))
    path.push_back(s->rank);
  const int again = plan.rank_of(at_rank(path.back())->waits_for.stage);
  path.erase(path.begin(), std::find(path.begin(), path.end(), again));

  std::string text;
  std::size_t shown = 0;
  for (const int rank : path) {
    if (shown == 8) {
      text += fmt::format("; and {} more ranks in the circle", path.size() - shown);
      break;
    }
    const Stuck& s = *at_rank(rank);
    const auto& row = plan.of(rank);
    const bool backward = s.waits_for.type == ActionType::backward;
    text +=
        fmt::format("{}rank {}, column {}, cell \"{}\" waits for {}{} on rank {}", shown++ > 0 ? "; " : "", rank, column_of(row, s.index),
                    cell_text(&row[s.index]), to_text(s.waits_for),
                    backward ? fmt::format(" (or {}I{})", s.waits_for.stage, s.waits_for.microbatch) : "", plan.rank_of(s.waits_for.stage));
  }
  throw PlanError(fmt::format("deadlock, these wait in a circle: {}; change the order of one of them", text));
}

}  // namespace ppengine::schedules
