// Measured runs as timelines.
#include <ppengine/engine/measure/timeline.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

namespace ppengine::engine {
namespace {

using schedules::Action;
using schedules::ActionType;

struct Mean {
  double sum = 0;
  int count = 0;
  void add(double value) { sum += value, ++count; }
  double get(double otherwise = 0) const { return count > 0 ? sum / count : otherwise; }
};

double milliseconds(const TimedAction& one) { return 1e3 * (one.end - one.start); }

}  // namespace

std::vector<std::vector<TimedAction>> last_run(const schedules::Plan& plan, const std::vector<std::vector<TimedAction>>& rows) {
  std::vector<std::vector<TimedAction>> run;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const auto& row = rows[static_cast<std::size_t>(rank)];
    const std::size_t count = std::min(plan.of(rank).size(), row.size());
    run.emplace_back(row.end() - static_cast<std::ptrdiff_t>(count), row.end());
  }
  return run;
}

schedules::Costs measured_costs(const schedules::Plan& plan, const std::vector<std::vector<TimedAction>>& run) {
  std::map<std::pair<int, ActionType>, Mean> alone, paired;
  Mean reduce;
  for (const auto& row : run)
    for (std::size_t i = 0; i < row.size(); ++i) {
      const TimedAction& one = row[i];
      const auto key = [](const Action& action) { return std::pair(int{action.stage}, action.type); };
      if (one.action.type == ActionType::reduce_grad) reduce.add(milliseconds(one));
      if (one.overlapped && i + 1 < row.size()) {  // half of the pair's time each, for stages that are never seen alone
        for (const Action& part : {one.action, row[i + 1].action}) paired[key(part)].add(milliseconds(one) / 2);
        ++i;
      } else if (schedules::is_compute(one.action.type)) {
        alone[key(one.action)].add(milliseconds(one));
      }
    }
  schedules::Costs costs;
  costs.reduce_grad = reduce.get();
  costs.stages.assign(static_cast<std::size_t>(plan.stages), {});
  for (int stage = 0; stage < plan.stages; ++stage) {
    const auto mean = [&](ActionType type) { return alone[{stage, type}].get(paired[{stage, type}].get()); };
    schedules::StageCosts& own = costs.stages[static_cast<std::size_t>(stage)];
    own.forward = mean(ActionType::forward);
    own.backward_input = mean(ActionType::backward_input);
    own.backward_weight = mean(ActionType::backward_weight);
    if (own.backward_input == 0 && own.backward_weight == 0) own.backward_input = own.backward_weight = mean(ActionType::backward) / 2;
  }
  // What an overlapped pair takes of its parts' times.
  double pairs = 0, parts = 0;
  for (const auto& row : run)
    for (std::size_t i = 0; i + 1 < row.size(); ++i)
      if (row[i].overlapped) {
        pairs += milliseconds(row[i]);
        parts += costs.compute(row[i].action) + costs.compute(row[i + 1].action);
      }
  // On a busy machine a pair may have taken longer than its parts elsewhere: the model of costs knows no such thing.
  if (parts > 0 && pairs > 0) costs.overlap_factor = std::min(1.0, pairs / parts);
  return costs;
}

schedules::Timeline measured_timeline(const std::vector<std::vector<TimedAction>>& run, const std::string& title) {
  double zero = std::numeric_limits<double>::infinity();
  for (const auto& row : run)
    for (const TimedAction& one : row) zero = std::min(zero, one.start);
  schedules::Timeline timeline;
  timeline.title = title;
  timeline.unit = "ms";
  for (std::size_t rank = 0; rank < run.size(); ++rank) {
    schedules::TimelineRow& row = timeline.rows.emplace_back();
    row.rank = static_cast<int>(rank);
    for (std::size_t i = 0; i < run[rank].size(); ++i) {
      const TimedAction& one = run[rank][i];
      schedules::TimelineEvent event{one.action, {}, 1e3 * (one.start - zero), 1e3 * (one.end - zero)};
      event.action.joined = false;
      if (one.overlapped && i + 1 < run[rank].size()) event.partner = run[rank][++i].action;
      if (schedules::is_message(one.action.type))
        row.messages.push_back(event);
      else if (schedules::is_compute(one.action.type))
        row.compute.push_back(event);
    }
  }
  schedules::complete_timeline(timeline);
  double idle = 0;
  for (const auto& row : timeline.rows) idle += row.idle_share / static_cast<double>(timeline.rows.size());
  timeline.subtitle = fmt::format("{:.4g} ms, idle {:.1f} %", timeline.end, 100 * idle);
  return timeline;
}

schedules::Timeline simulated_timeline(const schedules::Plan& plan, const schedules::Costs& costs, const std::string& title) {
  const schedules::Simulation simulation = schedules::simulate(plan, costs);
  schedules::Timeline timeline = schedules::make_timeline(plan, simulation, costs, title);
  timeline.unit = "ms";
  timeline.subtitle = fmt::format("{:.4g} ms, idle {:.1f} %", simulation.makespan, 100 * simulation.idle_share());
  return timeline;
}

}  // namespace ppengine::engine
