// tmp
#include <ppengine/schedules/chart.hpp>
namespace ppengine::schedules {
std::string chart_svg(const Timeline&) { return ""; }
std::string chart_html(const std::vector<Timeline>&, const std::string&) { return ""; }
}  // namespace ppengine::schedules
