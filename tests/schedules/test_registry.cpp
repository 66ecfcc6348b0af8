// Requests that make no sense are refused with a hint; own schedules and placements; questions that an engine asks.
#include <boost/test/unit_test.hpp>

#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/queries.hpp>
#include <ppengine/schedules/registry.hpp>
#include <ppengine/schedules/search/auto.hpp>
#include <ppengine/schedules/simulate.hpp>

using namespace ppengine;
using namespace ppengine::schedules;

namespace {

void check_refused(const char* name, int p, int s, int m, const std::string& part) {
  try {
    make_plan(name, p, s, m);
    BOOST_ERROR(std::string("accepted: ") + name);
  } catch (const ConfigError& e) {
    BOOST_CHECK_MESSAGE(std::string(e.what()).find(part) != std::string::npos, e.what());
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(registry)

BOOST_AUTO_TEST_CASE(impossible_requests_are_refused_with_a_hint) {
  check_refused("zbvzerobubble", 4, 12, 8, "use 8 stages");
  check_refused("dualpipev", 4, 12, 8, "use 8 stages");
  check_refused("dualpipev", 4, 8, 7, "use 8 microbatches");
  check_refused("1f1b", 4, 8, 8, "exactly 1 stage per rank");
  check_refused("gpipe", 4, 8, 8, "exactly 1 stage per rank");
  check_refused("interleaved1f1b", 4, 6, 8, "multiple of 4");
  check_refused("interleaved1f1b", 4, 8, 9, "use 8 or 10");
  check_refused("interleavedzerobubble", 4, 8, 9, "use 8 or 10");
  check_refused("1f1b", 4, 4, 0, "microbatches must be 1");
  check_refused("1f1b", 4, 4, -3, "microbatches must be 1");
  check_refused("1f1b", 0, 0, 1, "ranks must be 1");
  check_refused("1f1b", -1, 4, 1, "ranks must be 1");
  check_refused("interleaved1f1b", 4, 2, 1, "at least the number of ranks");
  check_refused("gpipe", 2000000000, 2000000000, 1, "ranks must be 1");
  check_refused("gpipe", 1, 1, 2000000000, "microbatches must be 1");
  check_refused("interleaved1f1b", 16384, 65535 / 16384 * 16384, 1 << 24, "actions a plan may have");
  check_refused("2f2b", 4, 4, 4, "known are");
}

BOOST_AUTO_TEST_CASE(an_own_schedule_is_registered_by_name) {
  Registry mine = builtin_schedules();
  mine.add({.name = "Mine", .summary = "one microbatch after the other", .make = [](const PlanRequest& r) {
              Plan plan = empty_plan(r.ranks, r.stages, r.microbatches, r.stage_rank);
              for (int s = 0; s < r.stages; ++s)
                for (int mb = 0; mb < r.microbatches; ++mb)
                  for (const auto type : {ActionType::forward, ActionType::backward})
                    plan.of(plan.rank_of(s)).push_back(make_action(s, type, mb));
              return plan;
            }});
  const Plan plan = mine.make("mine", {.ranks = 3, .microbatches = 2});
  BOOST_CHECK_CLOSE(simulate(plan).makespan, 2.0 * 3 * 3, 1e-9);
  BOOST_CHECK_THROW(builtin_schedules().find("mine"), ConfigError);
  BOOST_CHECK_THROW(mine.add({.name = "GPIPE", .summary = "", .make = [](const PlanRequest&) { return Plan{}; }}), ConfigError);
  // A plan that breaks a rule does not get past the registry.
  mine.add({.name = "broken", .summary = "", .make = [](const PlanRequest& r) {
              return empty_plan(r.ranks, r.stages, r.microbatches, r.stage_rank);
            }});
  BOOST_CHECK_THROW(mine.make("broken", {.ranks = 1, .microbatches = 1}), PlanError);
}

BOOST_AUTO_TEST_CASE(any_placement_for_those_that_can_and_renumbered_ranks_for_the_others) {
  const auto& all = builtin_schedules();
  const std::vector<int> odd{0, 0, 1, 2, 1, 1};
  for (const char* name : {"gpipe", "loopedbfs", "forward", "auto"}) {
    const Plan plan = all.make(name, {.ranks = 3, .microbatches = 4, .stage_rank = odd});
    BOOST_CHECK(plan.stage_rank == odd);
    BOOST_CHECK_GT(simulate(lower(plan)).makespan, 0);
  }
  const Plan turned = all.make("zbvzerobubble", {.ranks = 3, .microbatches = 4, .stage_rank = {2, 0, 1, 1, 0, 2}});
  BOOST_CHECK_EQUAL(simulate(turned).makespan, simulate(make_plan("zbvzerobubble", 3, 6, 4)).makespan);
  BOOST_CHECK_THROW(all.make("zbvzerobubble", {.ranks = 3, .microbatches = 4, .stage_rank = {0, 1, 2, 0, 1, 2}}), ConfigError);
  BOOST_CHECK_THROW(all.make("gpipe", {.ranks = 3, .microbatches = 4, .stage_rank = {0, 1, 3}}), ConfigError);
  BOOST_CHECK_THROW(all.make("gpipe", {.ranks = 3, .microbatches = 4, .stage_rank = {0, 1, 1}}), ConfigError);
}

BOOST_AUTO_TEST_CASE(one_f_one_b_also_runs_with_fewer_microbatches_than_stages) {
  for (int m = 1; m < 6; ++m) BOOST_CHECK_CLOSE(simulate(make_plan("1f1b", 6, 6, m)).makespan, 3.0 * (m + 5), 1e-9);
}

BOOST_AUTO_TEST_CASE(peaks_of_a_stage) {
  const Plan plan = lower(make_plan("1f1b", 4, 4, 8));
  for (int rank = 0; rank < 4; ++rank) {
    const auto peaks = stage_peaks(plan, rank);
    BOOST_REQUIRE_EQUAL(peaks.size(), 1);
    BOOST_CHECK_EQUAL(peaks[0].live_microbatches, 4 - rank);
    BOOST_CHECK_EQUAL(peaks[0].pending_weights, 0);
    BOOST_CHECK_EQUAL(peaks[0].received_activations > 0, rank > 0);
    BOOST_CHECK_EQUAL(peaks[0].received_gradients > 0, rank < 3);
  }
  const Plan zb = lower(make_plan("interleavedzerobubble", 4, 4, 8));
  for (int rank = 0; rank < 4; ++rank) BOOST_CHECK_EQUAL(stage_peaks(zb, rank)[0].pending_weights, rank + 1);
  BOOST_CHECK(uses_split_backward(zb) && !uses_overlap(zb) && zb.lowered() && !is_inference(zb));
  BOOST_CHECK(uses_overlap(make_plan("dualpipev", 2, 4, 4)));
  BOOST_CHECK(is_inference(make_plan("forward", 2, 4, 4)));
  BOOST_CHECK_EQUAL(default_stages("DualPipeV", 4), 8);
  BOOST_CHECK_EQUAL(default_stages("1f1b", 4), 4);
}

BOOST_AUTO_TEST_CASE(auto_says_which_limit_binds) {
  auto limit = [](const PlanRequest& r) { return make_auto_plan(r).limit; };
  BOOST_CHECK(limit({.ranks = 4, .microbatches = 12, .memory_limit = 2}).find("memory limit of 2") != std::string::npos);
  PlanRequest slow_links{.ranks = 4, .microbatches = 8};
  slow_links.costs.communication = 2;
  BOOST_CHECK(limit(slow_links).find("communication") != std::string::npos);
  BOOST_CHECK(limit({.ranks = 8, .microbatches = 4}).find("filling and draining") != std::string::npos);
  PlanRequest lopsided{.ranks = 2, .microbatches = 32};
  lopsided.costs.stages = {{1, 1, 1, 1}, {5, 5, 5, 1}};
  BOOST_CHECK(limit(lopsided).find("the work of rank 1") != std::string::npos);
  BOOST_CHECK_THROW(make_auto_plan({.ranks = 2, .stages = 4, .microbatches = 4, .memory_limit = 1}), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
