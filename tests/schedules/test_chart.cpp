// Charts hold every action with its times; what is too large for a picture is refused.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>

#include <ppengine/schedules/charts/chart.hpp>
#include <ppengine/schedules/registry.hpp>
#include <ppengine/schedules/report.hpp>

using namespace ppengine;
using namespace ppengine::schedules;

namespace {

Timeline timeline_of(const char* name, int p, int m) {
  const Plan plan = make_plan(name, p, default_stages(name, p), m);
  return make_timeline(plan, simulate(plan), {}, "a <title> & more");
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(charts)

BOOST_AUTO_TEST_CASE(the_terminal_chart_shows_order_and_idle_time) {
  const std::string text = chart_text(timeline_of("1f1b", 2, 2), {.color = false, .width = 80});
  BOOST_CHECK(text.find("rank 0 F0 F1 ......B0--- ...B1--- ") != text.npos);
  BOOST_CHECK(text.find("rank 1 ...F0 B0--- F1 B1--- ...") != text.npos);
  BOOST_CHECK(text.find('\x1b') == text.npos);
  BOOST_CHECK(chart_text(timeline_of("1f1b", 2, 2), {.color = true, .width = 80}).find("\x1b[48;2;") != text.npos);
}

BOOST_AUTO_TEST_CASE(the_svg_has_a_block_with_hover_text_for_every_cell) {
  const std::string svg = chart_svg(timeline_of("dualpipev", 2, 4));
  BOOST_CHECK_EQUAL(count(svg, "class=\"block\""), 16 + 15);  // PyTorch's table for p=2, m=4 has 31 cells
  BOOST_CHECK(svg.find("<title>(0F3;3B1)OVERLAP_F_B\nrank 0\n7 to 10</title>") != svg.npos);
  BOOST_CHECK(svg.find("a &lt;title&gt; &amp; more") != svg.npos);
  for (const char* pattern : {"url(#hatched)", "url(#dotted)", "url(#striped)"}) BOOST_CHECK(svg.find(pattern) != svg.npos);
}

BOOST_AUTO_TEST_CASE(a_page_can_hold_a_simulated_and_a_measured_timeline) {
  Timeline measured;
  measured.title = "measured";
  measured.unit = "ms";
  measured.rows = {
      {.rank = 0, .compute = {{make_action(0, ActionType::forward, 0), {}, 0, 2}, {make_action(0, ActionType::backward, 0), {}, 3, 7}}}};
  complete_timeline(measured);
  BOOST_CHECK_CLOSE(measured.end, 7.0, 1e-9);
  BOOST_CHECK_CLOSE(measured.rows[0].idle_share, 1.0 / 7, 1e-9);
  BOOST_CHECK_EQUAL(measured.rows[0].peak_live_microbatches, 1);
  const std::string page = chart_html({timeline_of("1f1b", 2, 2), measured}, "side by side");
  BOOST_CHECK_EQUAL(count(page, "<svg"), 2);
  BOOST_CHECK(page.find("http://") == page.find("http://www.w3.org/2000/svg"));  // nothing is loaded from elsewhere
  const std::string picture = chart_svg({timeline_of("1f1b", 2, 2), measured});
  BOOST_CHECK_EQUAL(count(picture, "<svg"), 3);  // one around both
  BOOST_CHECK_EQUAL(count(picture, "</svg>"), 3);
}

BOOST_AUTO_TEST_CASE(too_many_actions_for_a_picture_are_refused) {
  BOOST_CHECK_THROW(chart_svg(timeline_of("gpipe", 128, 1024)), ConfigError);
}

BOOST_AUTO_TEST_CASE(json_has_the_documented_fields) {
  const Plan plan = make_plan("1f1b", 2, 2, 2);
  const Simulation s = simulate(plan);
  const auto json = nlohmann::json::parse(to_json(plan, s, {}));
  BOOST_CHECK_CLOSE(json["makespan"].get<double>(), 9.0, 1e-9);
  BOOST_CHECK_CLOSE(json["idle_share"].get<double>(), 1.0 / 3, 1e-9);
  BOOST_CHECK_EQUAL(json["ranks"].size(), 2);
  BOOST_CHECK_EQUAL(json["ranks"][0]["peak_live_microbatches"].get<int>(), 2);
  BOOST_CHECK_EQUAL(json["ranks"][1]["actions"][1]["action"].get<std::string>(), "1B0");
  BOOST_CHECK_CLOSE(json["ranks"][1]["actions"][1]["end"].get<double>(), 4.0, 1e-9);
}

BOOST_AUTO_TEST_SUITE_END()
