// The search of `auto`: named schedules, list scheduling under many policies, and for small plans a local search on the
// best.
#include <ppengine/schedules/search/auto.hpp>

#include <fmt/format.h>

#include <algorithm>

#include <ppengine/schedules/check/validate.hpp>
#include <ppengine/schedules/generators/generators.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/queries.hpp>
#include <ppengine/schedules/search/improve.hpp>
#include <ppengine/schedules/search/list_scheduler.hpp>
#include <ppengine/schedules/simulate.hpp>

namespace ppengine::schedules {
namespace {

// How many actions all tries together may have: a few seconds.
constexpr std::int64_t action_budget = 12'000'000;

struct Search {
  PlanRequest request;
  AutoPlan best;
  bool found = false;

  bool fits(const Plan& plan) const {
    for (int rank = 0; request.memory_limit > 0 && rank < plan.ranks; ++rank)
      if (peak_live_microbatches(plan, rank) > request.memory_limit) return false;
    return true;
  }
  void consider(Plan plan, const std::string& origin) {
    if (!fits(plan)) return;
    const double makespan = simulate(plan, request.costs).makespan;
    if (found && makespan >= best.makespan) return;
    best.plan = std::move(plan);
    best.makespan = makespan;
    best.origin = origin;
    found = true;
  }
};

// 1. The named schedules, as they are and with I and W merged.
void try_named(Search& search) {
  for (const auto& name : builtin_schedules().names()) {
    const Schedule& schedule = builtin_schedules().find(name);
    if (schedule.inference || name == "auto") continue;
    try {
      Plan plan = builtin_schedules().make(name, search.request);
      Plan merged = merge_backward(plan);
      search.consider(std::move(plan), name);
      search.consider(std::move(merged), name + ", merged");
    } catch (const ConfigError&) {
      // Not for these numbers or this placement.
    }
  }
}

// 2. List scheduling under one policy after the other, until the budget is used up. The promising ones come first.
void try_policies(Search& search) {
  PlanRequest request = search.request;
  std::int64_t left = action_budget;
  const std::int64_t size = std::int64_t{3} * request.stages * request.microbatches;
  std::vector<std::vector<int>> placements;
  if (!request.stage_rank.empty())
    placements = {request.stage_rank};
  else if (request.stages == request.ranks)
    placements = {loop_placement(request.ranks, request.stages)};
  else
    placements = {loop_placement(request.ranks, request.stages), v_placement(request.ranks, request.stages)};

  for (const double slope : {0.0, 1.0})
    for (const bool split : {true, false})
      for (const auto prefer : {Policy::Prefer::backward, Policy::Prefer::alternate, Policy::Prefer::forward})
        for (const double patience : {1.0, 0.0, 0.5})
          for (const bool deep : {true, false})
            for (const auto& placement : placements) {
              if (!split && patience != 1.0) continue;
              // Without a limit an unbounded and a 1F1B-like bound are both worth a try.
              std::vector<int> limits{search.request.memory_limit};
              const int per_rank = (request.stages + request.ranks - 1) / request.ranks;
              if (limits[0] == 0) limits = {request.stages + per_rank, 2 * request.stages, 0};
              for (const int limit : limits) {
                left -= size;
                if (left < 0 && search.found) return;
                request.stage_rank = placement;
                const Policy policy{prefer, deep, split, patience, limit, slope};
                if (auto plan = list_schedule(request, policy)) search.consider(std::move(*plan), policy.text());
              }
            }
}

// `known`: an order that is allowed too, so that the result is never worse.
AutoPlan search_order(const PlanRequest& request, const AutoPlan* known = nullptr) {
  Search search{request, {}, false};
  if (known) search.consider(known->plan, known->origin);
  try_named(search);
  try_policies(search);
  if (!search.found)
    throw ConfigError(fmt::format("no order fits {} live microbatches a rank; allow at least {}, one for each stage of a rank",
                                  request.memory_limit, (request.stages + request.ranks - 1) / request.ranks));
  if (known) return std::move(search.best);
  // 3. Small changes, as long as they help.
  Plan better = improve_order(search.best.plan, request.costs, request.memory_limit);
  search.consider(std::move(better), search.best.origin + ", improved");
  return std::move(search.best);
}

// What would help: the same search with one limit lifted at a time.
std::string binding_limit(const PlanRequest& request, const AutoPlan& best) {
  const Simulation simulation = simulate(best.plan, request.costs);
  const auto busiest = std::max_element(simulation.ranks.begin(), simulation.ranks.end(),
                                        [](const RankTimes& a, const RankTimes& b) { return a.busy < b.busy; });
  std::string limit;
  double gain = best.makespan * 1e-9;
  auto lift = [&](const PlanRequest& lifted, const std::string& what) {
    const double makespan = search_order(lifted, &best).makespan;
    if (best.makespan - makespan <= gain) return;
    gain = best.makespan - makespan;
    limit = fmt::format("{} (without it: {:.6g})", what, makespan);
  };
  if (request.memory_limit > 0) {
    PlanRequest lifted = request;
    lifted.memory_limit = 0;
    lift(lifted, fmt::format("the memory limit of {} live microbatches", request.memory_limit));
  }
  if (request.costs.message() > 0) {
    PlanRequest lifted = request;
    lifted.costs.communication = lifted.costs.latency = lifted.costs.bandwidth = 0;
    lift(lifted, "communication");
  }
  if (!limit.empty()) return limit;
  const auto rank = busiest - simulation.ranks.begin();
  if (busiest->busy >= 0.95 * best.makespan)
    return fmt::format("the work of rank {}, busy {:.1f} % of the time", rank, 100 * busiest->busy / best.makespan);
  return fmt::format("filling and draining the pipeline with {} microbatches", request.microbatches);
}

}  // namespace

AutoPlan make_auto_plan(const PlanRequest& request) {
  PlanRequest r = request;
  if (r.stages == 0) r.stages = r.stage_rank.empty() ? r.ranks : static_cast<int>(r.stage_rank.size());
  empty_plan(r.ranks, r.stages, r.microbatches, {});
  check_costs(r.costs, r.stages);
  if (r.memory_limit < 0) throw ConfigError(fmt::format("the memory limit must be 1 or more, not {}", r.memory_limit));
  AutoPlan best = search_order(r);
  best.limit = binding_limit(r, best);
  validate(best.plan);
  return best;
}

namespace generators {
Plan automatic(const PlanRequest& request) { return make_auto_plan(request).plan; }
}  // namespace generators

}  // namespace ppengine::schedules
