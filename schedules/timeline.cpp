// Timelines from simulations, and the numbers of measured ones.
#include <ppengine/schedules/timeline.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace ppengine::schedules {

std::string TimelineEvent::text() const {
  if (!overlap()) return to_text(action);
  Action parts[2] = {action, partner};
  parts[0].joined = true;
  return cell_text(parts);
}

std::vector<int> Timeline::stages_of(const TimelineRow& row) const {
  std::vector<int> stages;
  for (const auto& e : row.compute)
    for (const Action& a : {e.action, e.partner})
      if (is_compute(a.type) && std::find(stages.begin(), stages.end(), a.stage) == stages.end()) stages.push_back(a.stage);
  std::sort(stages.begin(), stages.end());
  return stages;
}

Timeline make_timeline(const Plan& plan, const Simulation& simulation, const Costs& costs, const std::string& title) {
  Timeline timeline;
  timeline.title = title;
  timeline.end = simulation.makespan;
  timeline.subtitle = fmt::format("makespan {:.6g}, idle {:.2f} % of it, {:.2f} % of the longest span", simulation.makespan,
                                  100 * simulation.idle_share(), 100 * simulation.idle_share_of_span());
  for (int rank = 0; rank < plan.ranks; ++rank) {
    TimelineRow row;
    row.rank = rank;
    row.idle_share = simulation.idle_share(rank);
    row.peak_live_microbatches = simulation.ranks[static_cast<std::size_t>(rank)].peak_live_microbatches;
    row.memory = memory_curve(plan, simulation, costs, rank);
    const auto& actions = plan.of(rank);
    for (std::size_t i = 0; i < actions.size(); i += actions[i].joined ? 2 : 1) {
      const Action& a = actions[i];
      TimelineEvent event{a, {}, simulation.start[static_cast<std::size_t>(rank)][i], end_of(plan, simulation, costs, rank, i)};
      event.action.joined = false;
      if (a.joined) event.partner = actions[i + 1];
      if (is_message(a.type))
        row.messages.push_back(event);
      else if (is_compute(a.type) || event.end > event.start)
        row.compute.push_back(event);
    }
    timeline.rows.push_back(std::move(row));
  }
  return timeline;
}

void complete_timeline(Timeline& timeline, const Costs& costs) {
  for (const auto& row : timeline.rows)
    for (const auto& e : row.compute) timeline.end = std::max(timeline.end, e.end);
  bool inference = true;
  for (const auto& row : timeline.rows)
    for (const auto& e : row.compute)
      for (const Action& a : {e.action, e.partner}) inference = inference && !gives_weight_gradient(a.type);
  for (auto& row : timeline.rows) {
    double busy = 0;
    struct Change {
      double time;
      int sign;
      double bytes;
    };
    std::vector<Change> changes;
    for (const auto& e : row.compute) {
      busy += e.end - e.start;
      for (const Action& a : {e.action, e.partner}) {
        const double bytes = costs.of(costs.stages.size() == 1 ? 0 : a.stage).activation_bytes;
        if (a.type == ActionType::forward) changes.push_back({e.start, 1, bytes});
        if (gives_weight_gradient(a.type) || (inference && a.type == ActionType::forward)) changes.push_back({e.end, -1, bytes});
      }
    }
    std::stable_sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) { return a.time < b.time; });
    row.memory = {{0, 0, 0}};
    row.peak_live_microbatches = 0;
    for (const auto& c : changes) {
      const MemoryPoint& now = row.memory.back();
      row.memory.push_back({c.time, now.microbatches + c.sign, now.bytes + c.sign * c.bytes});
      row.peak_live_microbatches = std::max(row.peak_live_microbatches, row.memory.back().microbatches);
    }
    row.idle_share = timeline.end > 0 ? std::max(0.0, 1 - busy / timeline.end) : 0;
  }
}

}  // namespace ppengine::schedules
