// Levels filter what is written; a program that embeds the engine can take the lines over.
#include <boost/test/unit_test.hpp>

#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>

using namespace ppengine;

BOOST_AUTO_TEST_SUITE(logging)

BOOST_AUTO_TEST_CASE(only_lines_up_to_the_level_reach_the_sink) {
  const auto before = log::level();
  std::vector<std::string> lines;
  log::set_sink([&](log::Level, std::string_view text) { lines.emplace_back(text); });
  log::set_level(log::Level::info);
  log::error("a");
  log::info("b");
  log::debug("c");
  log::set_level(log::Level::off);
  log::error("d");
  log::set_sink({});
  log::set_level(before);
  BOOST_TEST(lines == (std::vector<std::string>{"a", "b"}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(an_unknown_level_is_refused) { BOOST_CHECK_THROW(log::parse_level("loud"), ConfigError); }

BOOST_AUTO_TEST_SUITE_END()
