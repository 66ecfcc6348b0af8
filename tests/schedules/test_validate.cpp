// Each rule of docs/schedules.md, "Validation": a plan that breaks it is rejected with rank, column and cell.
#include <boost/test/unit_test.hpp>

#include <ppengine/schedules/check/validate.hpp>
#include <ppengine/schedules/csv.hpp>

using namespace ppengine;
using namespace ppengine::schedules;

namespace {

std::string verdict(const std::string& text, int microbatches) {
  try {
    validate(parse_csv(text, microbatches));
  } catch (const PlanError& e) {
    return e.what();
  }
  return "valid";
}

void check_rejected(const std::string& text, int microbatches, const std::string& part) {
  const std::string said = verdict(text, microbatches);
  BOOST_CHECK_MESSAGE(said.find(part) != std::string::npos, text << " gives: " << said);
}

// Two stages on two ranks, one microbatch, with messages.
constexpr const char* good = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n";

}  // namespace

BOOST_AUTO_TEST_SUITE(validation)

BOOST_AUTO_TEST_CASE(right_plans_pass) {
  BOOST_CHECK_EQUAL(verdict("0F0,0B0\n1F0,1B0\n", 1), "valid");
  BOOST_CHECK_EQUAL(verdict("0F0,0I0,0W0\n", 1), "valid");
  BOOST_CHECK_EQUAL(verdict("0F0,0F1\n1F0,,1F1\n", 2), "valid");  // inference
  BOOST_CHECK_EQUAL(verdict(good, 1), "valid");
  BOOST_CHECK_EQUAL(verdict("0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n", 1), "valid");
}

BOOST_AUTO_TEST_CASE(order_within_a_row) {
  check_rejected("0B0,0F0\n", 1, "rank 0, column 0, cell \"0B0\": needs 0F0 earlier");
  check_rejected("0I0,0F0,0W0\n", 1, "rank 0, column 0, cell \"0I0\": needs 0F0 earlier");
  check_rejected("0F0,0W0,0I0\n", 1, "rank 0, column 1, cell \"0W0\": needs 0I0 earlier");
  check_rejected("(0F0;0B0)OVERLAP_F_B\n", 1, "cell \"(0F0;0B0)OVERLAP_F_B\": needs 0F0 earlier");
}

BOOST_AUTO_TEST_CASE(every_action_once) {
  check_rejected("0F0,0F0,0B0\n", 1, "rank 0, column 1, cell \"0F0\": the same action");
  check_rejected("0F0,0B0,0B0\n", 1, "rank 0, column 2, cell \"0B0\": the same action");
  check_rejected("0F0,0I0,0W0,0W0\n", 1, "column 3");
  check_rejected("0F0,0SEND_F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1, "column 2, cell \"0SEND_F0\": the same");
  check_rejected("0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n", 1, "column 3, cell \"0REDUCE_GRAD\": the same");
}

BOOST_AUTO_TEST_CASE(microbatches_are_in_range) {
  check_rejected("0F0,0F1,0F2,0B0,0B1,0B2\n", 2, "rank 0, column 2, cell \"0F2\": microbatch 2 is out of range, there are 2");
}

BOOST_AUTO_TEST_CASE(not_both_kinds_of_backward) {
  check_rejected("0F0,0B0,0I0,0W0\n", 1, "rank 0, column 2, cell \"0I0\": stage 0 has both B and I");
  check_rejected("0F0,0I0,0B0,0W0\n", 1, "rank 0, column 2, cell \"0B0\": stage 0 has both B and I");
}

BOOST_AUTO_TEST_CASE(one_rank_per_stage_and_a_stage_for_every_rank) {
  check_rejected("0F0,0B0\n0F1,0B1\n", 2, "rank 1, column 0, cell \"0F1\": stage 0 is run by rank 0 already");
  check_rejected("0F0,0B0\n2F0,2B0\n", 1, "stage 1 of 3 is run by no rank");
  check_rejected("0F0,0B0\n\n1F0,1B0\n", 1, "rank 1 runs no stage");
}

BOOST_AUTO_TEST_CASE(all_forwards_and_backwards_are_there) {
  check_rejected("0F0,0F1,0B0,0B1\n1F0,1B0,1B1\n", 2, "needs 1F1 earlier");
  check_rejected("0F0,0F1,0B0,0B1\n1F0,1F1,1B0\n", 2, "rank 1: 1B1 (or 1I1 and 1W1) is missing");
  check_rejected("0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1I1\n", 2, "rank 1: 1W1 is missing");
  check_rejected("0F0,0B0\n", 2, "0F1 is missing");
  check_rejected("0F0,0B0\n", 1000000, "is the number of microbatches right?");
  check_rejected("0F0,0B0,1F0,1B0\n2F0,2B0,3F0\n", 1, "rank 1: 3B0");
  check_rejected("0F0,0B0,0REDUCE_GRAD,0RESHARD,1F0,1B0\n", 1, "not unsharded");
}

BOOST_AUTO_TEST_CASE(order_across_ranks_is_checked_and_the_circle_is_shown) {
  // Rank 0 wants the gradient of microbatch 1 first, rank 1 makes that of 0 and then waits for the second forward.
  const std::string circle = "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n";
  check_rejected(circle, 2, "deadlock");
  check_rejected(circle, 2, "rank 0, column 1, cell \"0B0\" waits for 1B0 (or 1I0) on rank 1");
  check_rejected(circle, 2, "rank 1, column 0, cell \"1F1\" waits for 0F1 on rank 0");
  // The same on one rank: stage 1 before stage 0.
  check_rejected("1F0,0F0,1B0,0B0\n", 1, "cell \"1F0\" waits for 0F0 on rank 0");
  // With messages the receives wait.
  check_rejected("0RECV_B0,0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1, "cell \"0RECV_B0\" waits for 1SEND_B0 on rank 1");
}

BOOST_AUTO_TEST_CASE(sends_and_receives_pair) {
  check_rejected("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1, "rank 1, column 0, cell \"1RECV_F0\": has no 0SEND_F0 on rank 0");
  check_rejected("0F0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1, "rank 0, column 2, cell \"0B0\": needs 0RECV_B0 earlier");
  check_rejected("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n", 1, "rank 1, column 0, cell \"1F0\": needs 1RECV_F0 earlier");
  check_rejected("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1, "rank 0, column 0, cell \"0SEND_F0\": needs 0F0 earlier");
  check_rejected("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1SEND_B0,1B0\n", 1,
                 "rank 1, column 2, cell \"1SEND_B0\": needs 1B0 or 1I0 earlier");
  check_rejected("0F0,0SEND_B0,0B0\n", 1, "rank 0, column 1, cell \"0SEND_B0\": there is no stage -1");
  check_rejected("0F0,0SEND_F0,1F0,1B0,0B0\n", 1, "rank 0, column 1, cell \"0SEND_F0\": stages 0 and 1 are on the same rank");
  check_rejected("0F0,0SEND_F0,0RECV_B0,0B0,0SEND_F1\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1, "out of range");
}

BOOST_AUTO_TEST_CASE(the_two_formats_do_not_mix) {
  check_rejected("0F0,,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", 1,
                 "rank 0, column 1, cell \"\": a plan with communication has no idle cells");
}

BOOST_AUTO_TEST_CASE(sharding_and_reduction_are_in_order) {
  check_rejected("0UNSHARD,0F0,0RESHARD,0B0\n", 1, "rank 0, column 3, cell \"0B0\": stage 0 is resharded here");
  check_rejected("0UNSHARD,0UNSHARD,0F0,0B0\n", 1, "rank 0, column 1, cell \"0UNSHARD\": stage 0 is unsharded already");
  check_rejected("0RESHARD,0F0,0B0\n", 1, "not unsharded");
  check_rejected("0F0,0REDUCE_GRAD,0B0\n", 1, "rank 0, column 1, cell \"0REDUCE_GRAD\": only 0 of stage 0's 1 backwards");
  check_rejected("0F0,1F0,1B0,1REDUCE_GRAD,0B0\n", 1, "0REDUCE_GRAD is missing");
}

BOOST_AUTO_TEST_SUITE_END()
