// Hill climbing over the order of compute actions.
#include <ppengine/schedules/search/improve.hpp>

#include <algorithm>
#include <random>

#include <ppengine/schedules/queries.hpp>
#include <ppengine/schedules/simulate.hpp>

namespace ppengine::schedules {
namespace {

constexpr std::size_t largest_plan = 6000;
constexpr std::int64_t step_budget = 1'500'000;

// Whether two actions of one row depend on each other directly: F before B or I before W of a pair. (Dependencies
// through other ranks show up as a deadlock in the simulation.)
bool depend(const Action& a, const Action& b) { return a.stage == b.stage && a.microbatch == b.microbatch; }

// Moves row[from] to place `to`; false if it would jump over something that it depends on, or into an overlap.
bool move_action(std::vector<Action>& row, std::size_t from, std::size_t to) {
  const auto [low, high] = std::minmax(from, to);
  for (std::size_t i = low; i <= high; ++i)
    if (row[i].joined || (i > 0 && row[i - 1].joined) || (i != from && depend(row[i], row[from]))) return false;
  const auto begin = row.begin();
  const auto f = static_cast<std::ptrdiff_t>(from), t = static_cast<std::ptrdiff_t>(to);
  if (from < to)
    std::rotate(begin + f, begin + f + 1, begin + t + 1);
  else
    std::rotate(begin + t, begin + f, begin + f + 1);
  return true;
}

}  // namespace

Plan improve_order(const Plan& original, const Costs& costs, int memory_limit) {
  Plan best = original;
  std::size_t size = 0;
  for (auto& row : best.actions) {
    std::erase_if(row, [](const Action& a) { return a.type == ActionType::idle; });
    size += row.size();
  }
  if (size > largest_plan || size == 0) return original;

  double makespan = simulate(best, costs).makespan;
  std::minstd_rand random(12345);  // the same plan on every run
  auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random()) % n; };
  for (std::int64_t left = step_budget; left > 0; left -= static_cast<std::int64_t>(size)) {
    const auto rank = pick(best.actions.size());
    auto& row = best.actions[rank];
    if (row.size() < 2) continue;
    const std::size_t from = pick(row.size());
    const std::size_t reach = 1 + pick(6);
    const std::size_t to = pick(2) == 0 ? from - std::min(from, reach) : std::min(row.size() - 1, from + reach);
    std::vector<Action> before = row;
    if (from == to || !move_action(row, from, to)) continue;
    bool keep = memory_limit == 0 || peak_live_microbatches(best, static_cast<int>(rank)) <= memory_limit;
    if (keep) {
      try {
        const double now = simulate(best, costs).makespan;
        keep = now <= makespan;
        if (keep) makespan = now;
      } catch (const PlanError&) {
        keep = false;  // it would wait in a circle
      }
    }
    if (!keep) row = std::move(before);
  }
  return best;
}

}  // namespace ppengine::schedules
