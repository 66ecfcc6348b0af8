// Simulation against closed forms. The idle shares are those of docs/schedules.md (F = I = W = 1, B = 2, free
// communication).
#include <boost/test/unit_test.hpp>

#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/registry.hpp>
#include <ppengine/schedules/simulate.hpp>

using namespace ppengine;
using namespace ppengine::schedules;

namespace {

constexpr double tight = 1e-9;  // percent

double idle(const char* name, int p, int stages, int m) { return simulate(make_plan(name, p, stages, m)).idle_share(); }

}  // namespace

BOOST_AUTO_TEST_SUITE(simulation)

BOOST_AUTO_TEST_CASE(idle_shares_follow_the_closed_forms) {
  for (const int p : {2, 3, 4, 8})
    for (const int rounds : {1, 2, 4}) {
      const int m = p * rounds;
      const double bubble = p - 1;
      BOOST_CHECK_CLOSE(idle("gpipe", p, p, m), bubble / (m + bubble), tight);
      BOOST_CHECK_CLOSE(idle("1f1b", p, p, m), bubble / (m + bubble), tight);
      for (const int v : {2, 3, 4}) BOOST_CHECK_CLOSE(idle("interleaved1f1b", p, p * v, m), bubble / (v * m + bubble), tight);
      BOOST_CHECK_CLOSE(idle("interleavedzerobubble", p, p, m), bubble / (3 * m + bubble), tight);
    }
}

BOOST_AUTO_TEST_CASE(the_documented_shares_for_8_ranks_and_32_microbatches) {
  auto percent = [](const char* name, int v) { return 100 * idle(name, 8, 8 * v, 32); };
  BOOST_CHECK_CLOSE(percent("gpipe", 1), 17.95, 0.05);
  BOOST_CHECK_CLOSE(percent("1f1b", 1), 17.95, 0.05);
  BOOST_CHECK_CLOSE(percent("interleaved1f1b", 2), 9.86, 0.05);
  BOOST_CHECK_CLOSE(percent("interleaved1f1b", 4), 5.19, 0.1);
  BOOST_CHECK_CLOSE(percent("interleavedzerobubble", 1), 6.80, 0.1);
  BOOST_CHECK_CLOSE(percent("zbvzerobubble", 2), 3.52, 0.1);
  BOOST_CHECK_CLOSE(percent("dualpipev", 2), 6.80, 0.1);
  BOOST_CHECK_SMALL(simulate(make_plan("zbvzerobubble", 8, 16, 32)).idle_share_of_span(), 1e-12);
}

BOOST_AUTO_TEST_CASE(live_microbatches_are_m_for_gpipe_and_p_for_1f1b) {
  BOOST_CHECK_EQUAL(simulate(make_plan("gpipe", 8, 8, 32)).ranks[0].peak_live_microbatches, 32);
  BOOST_CHECK_EQUAL(simulate(make_plan("1f1b", 8, 8, 32)).ranks[0].peak_live_microbatches, 8);
  BOOST_CHECK_EQUAL(simulate(make_plan("1f1b", 8, 8, 3)).ranks[0].peak_live_microbatches, 3);
}

// The paper's figures: V-Half about half, V-Min about a third of 1F1B's activations (2p of these half-sized stages),
// plus a constant; and both idle less than 1F1B.
BOOST_AUTO_TEST_CASE(v_half_and_v_min_keep_to_their_memory) {
  for (const int p : {4, 6, 8, 12, 16, 32}) {
    const int m = 4 * p;
    auto peak = [&](const char* name) {
      int most = 0;
      for (const auto& r : simulate(make_plan(name, p, 2 * p, m)).ranks) most = std::max(most, r.peak_live_microbatches);
      return most;
    };
    BOOST_CHECK_LE(peak("vhalf"), p + 2);
    BOOST_CHECK_LE(peak("vmin"), (2 * p + 2) / 3 + 3);
    BOOST_CHECK_LT(idle("vhalf", p, 2 * p, m), idle("1f1b", p, p, m));
    BOOST_CHECK_LT(idle("vmin", p, 2 * p, m), idle("1f1b", p, p, m));
    BOOST_CHECK_LT(idle("vhalf", p, 2 * p, m), idle("vmin", p, 2 * p, m));
  }
}

BOOST_AUTO_TEST_CASE(communication_delays_what_needs_it_and_nothing_else) {
  // One microbatch through p ranks and back: (p - 1) messages each way.
  Costs costs;
  costs.communication = 0.5;
  const Plan plan = make_plan("1f1b", 4, 4, 1);
  BOOST_CHECK_CLOSE(simulate(plan, costs).makespan, 4 * 3 + 6 * 0.5, tight);
  costs = {};
  costs.latency = 0.25, costs.message_bytes = 8, costs.bandwidth = 32;
  BOOST_CHECK_CLOSE(simulate(plan, costs).makespan, 4 * 3 + 6 * 0.5, tight);
}

BOOST_AUTO_TEST_CASE(overlapped_sends_give_the_same_times_with_and_without_messages_in_the_plan) {
  Costs costs;
  costs.communication = 0.3;
  for (const char* name : {"1f1b", "interleaved1f1b", "zbvzerobubble", "dualpipev"}) {
    const Plan plan = make_plan(name, 4, default_stages(name, 4), 12);
    BOOST_CHECK_CLOSE(simulate(plan, costs).makespan, simulate(lower(plan), costs).makespan, tight);
    BOOST_CHECK_GE(simulate(lower(plan), costs, {.send = SendMode::blocking}).makespan, simulate(plan, costs).makespan);
  }
}

BOOST_AUTO_TEST_CASE(an_overlap_takes_its_share_but_never_less_than_its_longer_part) {
  const Plan plan = parse_csv("0F0,1F0,1B0,(0F1;0B0)OVERLAP_F_B,1F1,1B1,0B1\n", 2);
  Costs costs;
  BOOST_CHECK_CLOSE(simulate(plan, costs).makespan, 12.0, tight);
  costs.overlap_factor = 0.8;
  BOOST_CHECK_CLOSE(simulate(plan, costs).makespan, 12 - 0.6, tight);
  costs.overlap_factor = 0.1;
  BOOST_CHECK_CLOSE(simulate(plan, costs).makespan, 12.0 - 1, tight);
}

BOOST_AUTO_TEST_CASE(costs_can_differ_by_stage) {
  Costs costs;
  costs.stages = {{1, 1, 1, 10}, {2, 3, 4, 20}};
  const Simulation s = simulate(make_plan("gpipe", 2, 2, 2), costs);
  // Rank 1: starts at 1, works 2 * 9; then the last backward of rank 0.
  BOOST_CHECK_CLOSE(s.makespan, 1.0 + 18 + 2, tight);
  BOOST_CHECK_CLOSE(s.ranks[1].peak_live_bytes, 40.0, tight);
  costs.stages.push_back({});
  BOOST_CHECK_THROW(simulate(make_plan("gpipe", 2, 2, 2), costs), ConfigError);
}

BOOST_AUTO_TEST_CASE(the_critical_path_is_gapless_and_as_long_as_the_makespan) {
  for (const char* name : {"gpipe", "1f1b", "interleaved1f1b", "interleavedzerobubble", "zbvzerobubble", "dualpipev"}) {
    Costs costs;
    costs.communication = 0.25;
    const Plan plan = make_plan(name, 4, default_stages(name, 4), 12);
    const Simulation s = simulate(plan, costs);
    const auto path = critical_path(plan, s, costs);
    BOOST_REQUIRE(!path.empty());
    auto start = [&](const PathStep& step) { return s.start[static_cast<std::size_t>(step.rank)][step.index]; };
    BOOST_CHECK_SMALL(start(path.front()), 1e-12);
    for (std::size_t i = 0; i + 1 < path.size(); ++i) {
      const double arrives = end_of(plan, s, costs, path[i].rank, path[i].index) + (path[i].rank == path[i + 1].rank ? 0 : 0.25);
      BOOST_CHECK_CLOSE(arrives, start(path[i + 1]), 1e-6);
    }
    BOOST_CHECK_CLOSE(end_of(plan, s, costs, path.back().rank, path.back().index), s.makespan, tight);
  }
}

BOOST_AUTO_TEST_CASE(a_rendezvous_deadlock_is_reported_as_the_circle) {
  // Both ranks send before they receive.
  const Plan plan =
      parse_csv("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n", 2);
  BOOST_CHECK_CLOSE(simulate(plan).makespan, 9.0, tight);
  try {
    simulate(plan, {}, {.send = SendMode::rendezvous_unbatched});
    BOOST_ERROR("no deadlock");
  } catch (const PlanError& e) {
    const std::string text = e.what();
    BOOST_CHECK(text.find("rank 0, column 3, cell \"0SEND_F1\" waits for 1RECV_F1 on rank 1") != text.npos);
    BOOST_CHECK(text.find("rank 1, column 3, cell \"1SEND_B0\" waits for 0RECV_B0 on rank 0") != text.npos);
  }
}

BOOST_AUTO_TEST_SUITE_END()
