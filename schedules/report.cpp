// JSON, written as it goes: a plan of millions of actions never becomes a tree of objects.
#include <ppengine/schedules/report.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace ppengine::schedules {
namespace {

void append_actions(std::string& out, const Plan& plan, const Simulation& simulation, const Costs& costs, int rank) {
  const auto& row = plan.of(rank);
  out += ",\"actions\":[";
  bool first = true;
  for (std::size_t i = 0; i < row.size(); i += row[i].joined ? 2 : 1) {
    if (row[i].type == ActionType::idle) continue;
    out += first ? "{\"action\":\"" : ",{\"action\":\"";
    first = false;
    append_cell(out, &row[i]);
    fmt::format_to(std::back_inserter(out), "\",\"start\":{},\"end\":{}}}", simulation.start[static_cast<std::size_t>(rank)][i],
                   end_of(plan, simulation, costs, rank, i));
  }
  out += ']';
}

void append_critical_path(std::string& out, const Plan& plan, const Simulation& simulation, const Costs& costs) {
  out += ",\"critical_path\":[";
  bool first = true;
  for (const auto& step : critical_path(plan, simulation, costs)) {
    out += first ? "\"" : ",\"";
    first = false;
    append_cell(out, &plan.of(step.rank)[step.index]);
    out += '"';
  }
  out += ']';
}

}  // namespace

std::string to_json(const Plan& plan, const Simulation& simulation, const Costs& costs, const ReportOptions& options) {
  std::string out = fmt::format(
      "{{\"makespan\":{},\"idle_share\":{},\"longest_span\":{},\"idle_share_of_span\":{},\"stages\":{},"
      "\"microbatches\":{}",
      simulation.makespan, simulation.idle_share(), simulation.longest_span, simulation.idle_share_of_span(), plan.stages,
      plan.microbatches);
  if (!options.limit.empty()) out += ",\"limit\":" + nlohmann::json(options.limit).dump();
  out += ",\"ranks\":[";
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const RankTimes& times = simulation.ranks[static_cast<std::size_t>(rank)];
    fmt::format_to(std::back_inserter(out),
                   "{}{{\"idle_share\":{},\"idle_share_of_span\":{},\"busy\":{},\"peak_live_microbatches\":{},"
                   "\"peak_live_bytes\":{}",
                   rank > 0 ? "," : "", simulation.idle_share(rank), simulation.idle_share_of_span(rank), times.busy,
                   times.peak_live_microbatches, times.peak_live_bytes);
    if (options.actions) append_actions(out, plan, simulation, costs, rank);
    out += '}';
  }
  out += ']';
  if (options.actions) append_critical_path(out, plan, simulation, costs);
  out += "}\n";
  return out;
}

}  // namespace ppengine::schedules
