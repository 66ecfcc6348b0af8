// The executor against a fake: all ranks' plans run to the end, in order, with positions in errors.
#include <boost/test/unit_test.hpp>

#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/executor.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/registry.hpp>

using namespace ppengine;
using namespace ppengine::schedules;

namespace {

// Writes down every call as the text of the action.
class Fake : public ActionHandler {
 public:
  std::vector<std::string> calls;
  std::string fail_at;

  void forward(StageId s, int mb) override { note(s, "F", mb); }
  void backward(StageId s, int mb) override { note(s, "B", mb); }
  void backward_input(StageId s, int mb) override { note(s, "I", mb); }
  void backward_weight(StageId s, int mb) override { note(s, "W", mb); }
  void send_forward(StageId s, int mb, int peer) override { note(s, "SEND_F", mb, peer); }
  void recv_forward(StageId s, int mb, int peer) override { note(s, "RECV_F", mb, peer); }
  void send_backward(StageId s, int mb, int peer) override { note(s, "SEND_B", mb, peer); }
  void recv_backward(StageId s, int mb, int peer) override { note(s, "RECV_B", mb, peer); }
  void unshard(StageId s) override { note(s, "UNSHARD"); }
  void reshard(StageId s) override { note(s, "RESHARD"); }
  void reduce_grad(StageId s) override { note(s, "REDUCE_GRAD"); }

 private:
  void note(StageId stage, const std::string& type, int microbatch = -1, int peer = -1) {
    std::string text = std::to_string(stage.number()) + type;
    if (microbatch >= 0) text += std::to_string(microbatch);
    if (text == fail_at) throw CommError(peer, "receive", 7, "no message within 30 s");
    calls.push_back(peer < 0 ? text : text + ">" + std::to_string(peer));
  }
};

class Recorder : public ActionObserver {
 public:
  std::vector<std::string> cells;
  int open = 0;
  void begin(const Position& p) override {
    BOOST_CHECK_EQUAL(open++, 0);
    BOOST_CHECK_EQUAL(p.column, static_cast<int>(cells.size()));
    cells.push_back(p.text());
  }
  void end(const Position&) override { BOOST_CHECK_EQUAL(--open, 0); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(executor)

BOOST_AUTO_TEST_CASE(a_rank_runs_its_row_in_order) {
  const Plan plan = parse_csv("0UNSHARD,0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0RESHARD\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\n", 1);
  Fake fake;
  Recorder recorder;
  execute(plan, 0, fake, &recorder);
  const std::vector<std::string> expected{"0UNSHARD", "0F0", "0SEND_F0>1", "0RECV_B0>1", "0I0", "0W0", "0REDUCE_GRAD", "0RESHARD"};
  BOOST_TEST(fake.calls == expected, boost::test_tools::per_element());
  BOOST_CHECK_EQUAL(recorder.cells.size(), 8);
  BOOST_CHECK_EQUAL(recorder.cells[6], "0REDUCE_GRAD");
}

BOOST_AUTO_TEST_CASE(an_overlap_runs_both_parts_where_the_handler_does_not_know_better) {
  const Plan plan = lower(make_plan("dualpipev", 2, 4, 4), {.unshard = false, .reduce_grad = false});
  Fake fake;
  Recorder recorder;
  execute(plan, 0, fake, &recorder);
  BOOST_CHECK(std::find(recorder.cells.begin(), recorder.cells.end(), "(0F3;3B1)OVERLAP_F_B") != recorder.cells.end());
  const auto at = std::find(fake.calls.begin(), fake.calls.end(), "0F3");
  BOOST_REQUIRE(at != fake.calls.end() && at + 1 != fake.calls.end());
  BOOST_CHECK_EQUAL(*(at + 1), "3B1");
}

BOOST_AUTO_TEST_CASE(an_error_keeps_its_type_and_gains_rank_position_and_action) {
  const Plan plan = lower(make_plan("1f1b", 4, 4, 4), {.unshard = false});
  Fake fake;
  fake.fail_at = "2RECV_F1";
  try {
    execute(plan, 2, fake);
    BOOST_ERROR("no error");
  } catch (const CommError& e) {
    BOOST_CHECK_EQUAL(e.peer(), 1);
    BOOST_CHECK_EQUAL(e.what(), std::string("receive with rank 1 (tag 7): no message within 30 s "
                                            "(at rank 2, plan position 3, 2RECV_F1)"));
  }
  // What a library says that ends the process instead of coming back.
  struct Ends : Fake {
    void forward(StageId, int) override { said = with_position(CommError(1, "receive", 7, "rank 1 failed: it ended")).what(); }
    std::string said;
  } ends;
  execute(plan, 3, ends);
  BOOST_CHECK_EQUAL(ends.said, "receive with rank 1 (tag 7): rank 1 failed: it ended (at rank 3, plan position 13, 3F3)");
  BOOST_CHECK_EQUAL(with_position(CommError(1, "receive", 7, "late")).what(), std::string("receive with rank 1 (tag 7): late"));
  struct Broken : Fake {
    void forward(StageId, int) override { throw std::runtime_error("out of paper"); }
  } broken;
  try {
    execute(plan, 3, broken);
    BOOST_ERROR("no error");
  } catch (const Error& e) {
    BOOST_CHECK_EQUAL(e.what(), std::string("rank 3, plan position 1, 3F0: out of paper"));
    BOOST_CHECK_EQUAL(e.position(), "rank 3, plan position 1, 3F0");
  }
}

BOOST_AUTO_TEST_CASE(only_lowered_plans_and_existing_ranks_run) {
  Fake fake;
  BOOST_CHECK_THROW(execute(make_plan("1f1b", 2, 2, 2), 0, fake), ConfigError);
  BOOST_CHECK_THROW(execute(lower(make_plan("1f1b", 2, 2, 2)), 2, fake), ConfigError);
}

BOOST_AUTO_TEST_SUITE_END()
