// The text of actions and the CSV of plans, both ways; what is not exactly the grammar is named with row, column and
// text.
#include <boost/test/unit_test.hpp>

#include <ppengine/schedules/csv.hpp>
#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/registry.hpp>

using namespace ppengine;
using namespace ppengine::schedules;

namespace {

std::string error_of(const std::string& text, int microbatches = 0) {
  try {
    parse_csv(text, microbatches);
  } catch (const PlanError& e) {
    return e.what();
  }
  return "accepted";
}

bool starts_with(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

}  // namespace

BOOST_AUTO_TEST_SUITE(text)

BOOST_AUTO_TEST_CASE(every_type_reads_back_as_it_was_written) {
  for (const char* each : {"2F0", "2B0", "2I0", "2W10", "2SEND_F0", "3RECV_F0", "3SEND_B0", "2RECV_B0", "1UNSHARD", "1RESHARD",
                           "0REDUCE_GRAD", "65534F16777215"})
    BOOST_CHECK_EQUAL(to_text(parse_action(each)), each);
  Cell cell;
  for (const char* each : {"(0F7;7B3)OVERLAP_F_B", "(0F7;7I3)OVERLAP_F_B"}) {
    BOOST_CHECK_EQUAL(parse_cell(each, cell), "");
    BOOST_CHECK_EQUAL(cell_text(cell.parts), each);
  }
}

BOOST_AUTO_TEST_CASE(junk_around_an_action_is_refused) {
  Cell cell;
  for (const char* each : {"F0",
                           "0F",
                           "0",
                           "0X0",
                           "0F0 ",
                           " 0F0",
                           "0F0x",
                           "0F0F1",
                           "0f0",
                           "-1F0",
                           "0F-1",
                           "00F1",
                           "0F01",
                           "0UNSHARD1",
                           "0SEND_F",
                           "0SEND0",
                           "0F0;",
                           "(0F0;1B0)",
                           "(0F0;1B0)OVERLAP",
                           "(0F0)OVERLAP_F_B",
                           "(0F0;1B0;2B0)OVERLAP_F_B",
                           "(1B0;0F0)OVERLAP_F_B",
                           "()OVERLAP_F_B",
                           "((0F0;1B0)OVERLAP_F_B",
                           "(0F0;1B0)OVERLAP_F_B)",
                           "99999999999999999999F0",
                           "0F99999999999999999999",
                           "65535F0",
                           "0F16777216",
                           "None",
                           "\"",
                           "("})
    BOOST_CHECK_MESSAGE(!parse_cell(each, cell).empty(), each);
}

BOOST_AUTO_TEST_CASE(a_bad_cell_is_named_with_rank_column_and_text) {
  BOOST_CHECK(starts_with(error_of("0F0,0B0\n1F0,1Bx\n"), "rank 1, column 1, cell \"1Bx\": "));
  BOOST_CHECK(starts_with(error_of("0F0,,(0F1;0B0)OVERLAP,0B1\n"), "rank 0, column 2, cell \"(0F1;0B0)OVERLAP\": "));
  BOOST_CHECK(starts_with(error_of(std::string("0F0,\x01\xff\n", 7)), "rank 0, column 1, cell \"??\": "));
  BOOST_CHECK(starts_with(error_of(""), "the plan has no actions"));
  BOOST_CHECK(starts_with(error_of(",,\n,\n"), "the plan has no actions"));
}

BOOST_AUTO_TEST_CASE(both_line_endings_and_a_missing_last_one_are_read) {
  const Plan plan = make_plan("1f1b", 2, 2, 3);
  std::string text = to_csv(plan);
  BOOST_CHECK(parse_csv(text) == plan);
  text.erase(std::remove(text.begin(), text.end(), '\r'), text.end());
  BOOST_CHECK(parse_csv(text) == plan);
  text.pop_back();
  BOOST_CHECK(parse_csv(text) == plan);
}

BOOST_AUTO_TEST_CASE(the_format_and_the_placement_follow_from_the_actions) {
  const Plan plan = make_plan("zbvzerobubble", 3, 6, 5);
  BOOST_CHECK(!parse_csv(to_csv(plan)).lowered());
  BOOST_CHECK(parse_csv(to_csv(lower(plan))).lowered());
  BOOST_CHECK((parse_csv(to_csv(plan)).stage_rank == std::vector<int>{0, 1, 2, 2, 1, 0}));
}

BOOST_AUTO_TEST_CASE(a_lone_idle_cell_is_quoted_as_python_does) {
  Plan plan = make_plan("gpipe", 1, 1, 1);
  plan.actions.push_back({Action{}});
  BOOST_CHECK_EQUAL(to_csv(plan), "0F0,0B0\r\n\"\"\r\n");
  BOOST_CHECK_EQUAL(parse_csv(to_csv(plan)).of(1).size(), 1);
}

BOOST_AUTO_TEST_SUITE_END()
