// Placement and small questions about plans.
#include <ppengine/schedules/plan.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace ppengine::schedules {
namespace {

template <typename Predicate>
bool any_action(const Plan& plan, Predicate predicate) {
  return std::any_of(plan.actions.begin(), plan.actions.end(),
                     [&](const auto& row) { return std::any_of(row.begin(), row.end(), predicate); });
}

}  // namespace

PlanError::PlanError(int rank, int column, const std::string& cell, const std::string& reason)
    : ConfigError(
          fmt::format("rank {}, column {}, cell \"{}\": {} (ranks are rows; rows and columns count from 0)", rank, column, cell, reason)),
      rank_(rank),
      column_(column) {}

int column_of(const std::vector<Action>& actions, std::size_t index) {
  int column = 0;
  for (std::size_t i = 0; i < index; ++i) column += actions[i].joined ? 0 : 1;
  return column;
}

void reject(const Plan& plan, int rank, std::size_t index, const std::string& reason) {
  const auto& row = plan.of(rank);
  const std::size_t first = index > 0 && row[index - 1].joined ? index - 1 : index;
  throw PlanError(rank, column_of(row, first), cell_text(&row[first]), reason);
}

std::vector<int> loop_placement(int ranks, int stages) {
  std::vector<int> result(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) result[static_cast<std::size_t>(s)] = s % ranks;
  return result;
}

std::vector<int> v_placement(int ranks, int stages) {
  std::vector<int> result(static_cast<std::size_t>(stages));
  for (int s = 0; s < stages; ++s) result[static_cast<std::size_t>(s)] = (s / ranks) % 2 == 0 ? s % ranks : ranks - 1 - s % ranks;
  return result;
}

std::vector<int> local_stages(const Plan& plan, int rank) {
  std::vector<int> result;
  for (int s = 0; s < plan.stages; ++s)
    if (plan.rank_of(s) == rank) result.push_back(s);
  return result;
}

bool uses_overlap(const Plan& plan) {
  return any_action(plan, [](const Action& a) { return a.joined; });
}

bool uses_split_backward(const Plan& plan) {
  return any_action(plan, [](const Action& a) { return a.type == ActionType::backward_input; });
}

bool is_inference(const Plan& plan) {
  return !any_action(plan, [](const Action& a) { return is_compute(a.type) && a.type != ActionType::forward; });
}

Plan empty_plan(int ranks, int stages, int microbatches, std::vector<int> stage_rank) {
  if (ranks < 1 || ranks > max_ranks) throw ConfigError(fmt::format("ranks must be 1 to {}, not {}", max_ranks, ranks));
  if (stages < ranks || stages > max_stages)
    throw ConfigError(fmt::format("stages must be at least the number of ranks ({}) and at most {}, not {}", ranks, max_stages, stages));
  if (microbatches < 1 || microbatches > max_microbatches)
    throw ConfigError(fmt::format("microbatches must be 1 to {}, not {}", max_microbatches, microbatches));
  if (std::int64_t{3} * stages * microbatches > max_plan_actions)
    throw ConfigError(
        fmt::format("{} stages x {} microbatches is more than the {} actions a plan may have; use fewer "
                    "microbatches",
                    stages, microbatches, max_plan_actions));
  Plan plan;
  plan.ranks = ranks;
  plan.stages = stages;
  plan.microbatches = microbatches;
  plan.stage_rank = std::move(stage_rank);
  plan.actions.resize(static_cast<std::size_t>(ranks));
  return plan;
}

}  // namespace ppengine::schedules
