// Regular expressions as Python's re has them; the expected answers are Python's.
#include <boost/test/unit_test.hpp>

#include <string>

#include <ppengine/base/error.hpp>
#include <ppengine/base/pattern.hpp>

using namespace ppengine;

namespace {

std::string refused(const char* text, const std::string& subject = "") {
  try {
    static_cast<void>(Pattern("--freeze", text).found_in(subject));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(patterns)

BOOST_AUTO_TEST_CASE(a_part_or_the_whole_of_a_text) {
  const Pattern pattern("--freeze", R"(layers\.\d+\.(q|v)_proj)");
  BOOST_TEST(pattern.found_in("model.layers.12.v_proj.weight"));
  BOOST_TEST(!pattern.found_in("model.layers.x.v_proj"));
  BOOST_TEST(pattern.fits("layers.1.q_proj"));
  BOOST_TEST(!pattern.fits("model.layers.1.q_proj"));
  BOOST_TEST(!pattern.fits("layers.1.q_proj.weight"));
  BOOST_TEST(Pattern("", "a|ab").fits("ab"));  // the alternative that fits the whole
  BOOST_TEST(Pattern("", "").found_in("anything"));
}

BOOST_AUTO_TEST_CASE(what_python_has_and_ecmascript_lacks) {
  BOOST_TEST(Pattern("", R"((?<!lm_)head)").found_in("score.head"));
  BOOST_TEST(!Pattern("", R"((?<!lm_)head)").found_in("lm_head"));
  BOOST_TEST(Pattern("", R"((?P<part>up|down)_proj)").fits("up_proj"));
  BOOST_TEST(Pattern("", R"((?i)NORM\Z)").found_in("input_layernorm"));
}

BOOST_AUTO_TEST_CASE(broken_expressions_are_refused_with_their_place) {
  BOOST_TEST(refused("a(b").find("--freeze: 'a(b' is not a regular expression: missing closing parenthesis") == 0, refused("a(b"));
  BOOST_TEST(!refused("*a").empty());
}

BOOST_AUTO_TEST_CASE(expressions_that_would_take_for_ever_end_with_an_error) {
  std::string almost(40, 'a');
  almost.back() = 'b';
  BOOST_TEST(refused("(a+)+$", almost).find("cannot be matched") != std::string::npos);
  BOOST_TEST(!Pattern("", "(a|b)*[cd]").found_in(std::string(100, 'a')));
  BOOST_TEST(!refused("(a|b)*[cd]", std::string(1 << 20, 'a')).empty());  // std::regex: out of stack
}

BOOST_AUTO_TEST_SUITE_END()
