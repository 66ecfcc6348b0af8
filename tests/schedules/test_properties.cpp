// Properties over random (p, v, m, costs): every plan validates, runs under every send semantics, keeps its memory
// bound, survives CSV; auto is never worse than what is named; a mutation of a valid plan is caught.
#include <boost/test/unit_test.hpp>
#include <rapidcheck.h>

#include <ppengine/schedules/check/validate.hpp>
#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/queries.hpp>
#include <ppengine/schedules/registry.hpp>
#include <ppengine/schedules/search/auto.hpp>
#include <ppengine/schedules/simulate.hpp>

using namespace ppengine;
using namespace ppengine::schedules;

namespace {

struct Drawn {
  std::string name;
  Plan plan;
};

int in(int from, int to) { return *rc::gen::inRange(from, to + 1); }
double cost() { return in(1, 40) / 8.0; }

// A named schedule with numbers that it accepts.
Drawn draw_plan() {
  const std::vector<std::string> names{"gpipe",     "1f1b",  "loopedbfs", "interleaved1f1b", "interleavedzerobubble", "zbvzerobubble",
                                       "dualpipev", "vhalf", "vmin",      "forward"};
  const std::string name = *rc::gen::elementOf(names);
  const Schedule& schedule = builtin_schedules().find(name);
  const int p = in(1, 7);
  const int v = schedule.stages_per_rank > 0 ? schedule.stages_per_rank : in(1, 4);
  int m = in(1, 18);
  if (name == "dualpipev") m += 2 * p;
  if (name.starts_with("interleaved")) m -= m % std::max(1, m / p);
  return {name, make_plan(name, p, p * v, m)};
}

Costs draw_costs(int stages) {
  Costs costs;
  costs.communication = in(0, 2) == 0 ? 0 : cost() / 4;
  costs.overlap_factor = in(1, 10) / 10.0;
  costs.stages.clear();
  for (int s = 0; s < stages; ++s) costs.stages.push_back({cost(), cost(), cost(), 1});
  return costs;
}

// The same cases in every run, so that a gate does not fail for what nobody changed. For others, and more of them:
//   RC_PARAMS='max_success=100000' build/bin/tests/test_schedules -t properties
void check(const char* what, const std::function<void()>& property) {
  setenv("RC_PARAMS", "seed=20261117", 0);
  BOOST_CHECK_MESSAGE(rc::check(what, property), what);
}

bool is_valid(const Plan& plan) {
  try {
    validate(plan);
    return true;
  } catch (const PlanError&) {
    return false;
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(properties)

BOOST_AUTO_TEST_CASE(plans_validate_and_never_deadlock_in_any_form) {
  check("valid and free of deadlock", [] {
    const auto [name, plan] = draw_plan();
    const Costs costs = draw_costs(plan.stages);
    validate(plan);
    const double free_running = simulate(plan, costs).makespan;
    for (const bool sharded : {true, false}) {
      LowerOptions options{.merge = in(0, 1) == 1, .unshard = sharded, .max_active_stages = in(1, 4), .reduce_grad = sharded};
      for (const bool defer : {false, true}) {
        options.defer_recv = defer;
        const Plan lowered = lower(plan, options);
        validate(lowered);
        // A send that waits for its receive costs time, but never stops anything; without batches it is the strictest
        // there is.
        if (!options.merge) RC_ASSERT(simulate(lowered, costs).makespan <= free_running * (1 + 1e-12));
        simulate(lowered, costs, {.send = SendMode::blocking});
        simulate(lowered, costs, {.send = SendMode::rendezvous});
        simulate(lowered, costs, {.send = SendMode::rendezvous_unbatched});
      }
      options.defer_recv = false;
      const Plan as_pytorch = defer_recv_as_pytorch(lower(plan, options));
      validate(as_pytorch);
      simulate(as_pytorch, costs, {.send = SendMode::blocking});
    }
  });
}

BOOST_AUTO_TEST_CASE(the_round_trip_through_csv_is_the_identity) {
  check("csv round trip", [] {
    const auto [name, plan] = draw_plan();
    RC_ASSERT(parse_csv(to_csv(plan), plan.microbatches) == plan);
    const Plan lowered = lower(plan);
    RC_ASSERT(parse_csv(to_csv(lowered), plan.microbatches) == lowered);
  });
}

BOOST_AUTO_TEST_CASE(memory_bounds_hold) {
  check("memory", [] {
    const auto [name, plan] = draw_plan();
    const int p = plan.ranks, v = plan.stages / p, m = plan.microbatches;
    for (int rank = 0; rank < p; ++rank) {
      const int peak = peak_live_microbatches(plan, rank);
      RC_ASSERT(peak <= v * m);
      if (name == "1f1b") RC_ASSERT(peak == std::min(m, p - rank));
      if (name == "gpipe" || name == "loopedbfs") RC_ASSERT(peak == v * m);
      if (name == "zbvzerobubble") RC_ASSERT(peak <= 2 * p);
      if (name == "dualpipev") RC_ASSERT(peak <= 2 * p + 1);
      if (name == "vhalf") RC_ASSERT(peak <= p + 3);
      if (name == "vmin") RC_ASSERT(peak <= (2 * p + 2) / 3 + 3);
      if (name == "forward") RC_ASSERT(peak == 1);
      // What the simulation sees over time is what the order says.
      const Simulation s = simulate(plan);
      RC_ASSERT(s.ranks[static_cast<std::size_t>(rank)].peak_live_microbatches == peak);
    }
  });
}

BOOST_AUTO_TEST_CASE(time_adds_up) {
  check("time adds up", [] {
    const auto [name, plan] = draw_plan();
    const Costs costs = draw_costs(plan.stages);
    const Simulation s = simulate(plan, costs);
    RC_ASSERT(s.longest_span <= s.makespan * (1 + 1e-12));
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const auto& row = plan.of(rank);
      double free_at = 0;
      for (std::size_t i = 0; i < row.size(); i += row[i].joined ? 2 : 1) {
        if (row[i].type == ActionType::idle) continue;
        const double start = s.start[static_cast<std::size_t>(rank)][i];
        RC_ASSERT(start >= free_at - 1e-9);
        free_at = end_of(plan, s, costs, rank, i);
      }
      RC_ASSERT(free_at <= s.makespan);
      RC_ASSERT(s.idle_share(rank) >= 0 && s.idle_share(rank) < 1);
    }
  });
}

BOOST_AUTO_TEST_CASE(auto_is_never_worse_than_what_is_named_and_keeps_the_limit) {
  check("auto", [] {
    const int p = in(1, 5), v = in(1, 2), m = in(1, 8);
    PlanRequest request{.ranks = p, .stages = p * v, .microbatches = m, .costs = draw_costs(p * v)};
    request.memory_limit = in(0, 2) == 0 ? 0 : in(v, v * m);
    const AutoPlan found = make_auto_plan(request);
    validate(found.plan);
    RC_ASSERT(!found.limit.empty());
    auto fits = [&](const Plan& plan) {
      for (int rank = 0; request.memory_limit > 0 && rank < p; ++rank)
        if (peak_live_microbatches(plan, rank) > request.memory_limit) return false;
      return true;
    };
    RC_ASSERT(fits(found.plan));
    for (const auto& name : builtin_schedules().names()) {
      if (name == "auto" || name == "forward") continue;
      try {
        const Plan plan = make_plan(name, p, p * v, m);
        if (fits(plan)) RC_ASSERT(found.makespan <= simulate(plan, request.costs).makespan * (1 + 1e-12));
      } catch (const ConfigError&) {
        // Not for these numbers.
      }
    }
  });
}

BOOST_AUTO_TEST_CASE(a_mutation_is_caught) {
  check("mutation", [] {
    auto [name, plan] = draw_plan();
    const bool lowered = in(0, 1) == 1;
    if (lowered) plan = lower(plan, {.unshard = in(0, 1) == 1});
    auto& row = plan.of(in(0, plan.ranks - 1));
    std::erase_if(row, [](const Action& a) { return a.type == ActionType::idle; });
    const auto i = static_cast<std::size_t>(in(0, static_cast<int>(row.size()) - 1));
    RC_PRE(!row[i].joined && (i == 0 || !row[i - 1].joined));
    const bool optional_action = row[i].type == ActionType::unshard || row[i].type == ActionType::reshard;
    switch (in(0, 3)) {
      case 0:  // lost; a missing reshard at the end is no error, nor the gathering of a stage that nobody gathers; and a plan that loses
               // its only backward is one for inference
        RC_PRE(!optional_action && row[i].type != ActionType::reduce_grad);
        RC_PRE(row[i].type != ActionType::backward || plan.stages * plan.microbatches > 1);
        row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
        break;
      case 1:  // twice
        row.insert(row.begin() + static_cast<std::ptrdiff_t>(i), row[i]);
        break;
      case 2:  // a microbatch that does not exist
        RC_PRE(has_microbatch(row[i].type));
        row[i].microbatch = static_cast<std::uint32_t>(plan.microbatches);
        break;
      default:  // another rank's stage
        RC_PRE(plan.ranks > 1);
        do row[i].stage = static_cast<std::uint16_t>((row[i].stage + 1) % plan.stages);
        while (plan.rank_of(row[i].stage) == plan.rank_of(row[(i + 1) % row.size()].stage) && row.size() > 1 &&
               plan.rank_of(row[i].stage) == static_cast<int>(&row - plan.actions.data()));
    }
    RC_ASSERT(!is_valid(plan));
  });
}

BOOST_AUTO_TEST_SUITE_END()
