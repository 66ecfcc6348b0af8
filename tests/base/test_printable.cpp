// Nothing that is printed as a message controls the terminal.
#include <boost/test/unit_test.hpp>

#include <ppengine/base/printable.hpp>

using ppengine::printable;

BOOST_AUTO_TEST_CASE(control_characters_become_question_marks_and_all_else_stays) {
  BOOST_TEST(printable("two\nlines\tof text") == "two\nlines\tof text");
  BOOST_TEST(printable("\x1b[31mred\x1b[0m") == "?[31mred?[0m");
  BOOST_TEST(printable("over\rwritten\b\a\x7f") == "over?written???");
  BOOST_TEST(printable("\xc2\x9b"
                       "2J") == "?2J");  // U+009B, the same as ESC [
  BOOST_TEST(printable(std::string_view("a\0b", 3)) == "a?b");
  BOOST_TEST(printable("\xc3\xbc \xc2\xa0 \xe2\x82\xac \xf0\x9f\x98\x80") ==
             "\xc3\xbc \xc2\xa0 \xe2\x82\xac \xf0\x9f\x98\x80");  // letters, signs
  BOOST_TEST(printable("\xc2") == "\xc2");
}
