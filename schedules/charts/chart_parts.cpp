// Pieces of the SVG.
#include <ppengine/schedules/charts/chart_parts.hpp>

#include <fmt/format.h>

#include <cmath>

#include <ppengine/schedules/charts/chart.hpp>
#include <ppengine/schedules/charts/chart_style.hpp>

namespace ppengine::schedules {

std::string svg_style() {
  return R"svg(<style>
.timeline text { font-family: "Helvetica Neue", Helvetica, Arial, "DejaVu Sans", sans-serif; font-size: 12px; fill: #1b2130; }
.timeline .title { font-size: 24px; font-weight: 600; }
.timeline .subtitle { font-size: 15px; fill: #4a5366; }
.timeline .rank { text-anchor: end; }
.timeline .hint { fill: #6a7386; }
.timeline .share, .timeline .legend { fill: #39424f; }
.timeline .panel { font-size: 13px; font-weight: 600; }
.timeline .number { text-anchor: middle; fill: #4a5366; }
.timeline .block text { text-anchor: middle; pointer-events: none; }
.timeline text.dark { fill: #141820; }
.timeline text.light { fill: #ffffff; }
.timeline text.l { font-size: 11px; font-weight: 600; }
.timeline text.n { font-size: 8.6px; }
.timeline .page { fill: #ffffff; }
.timeline .idle { fill: #eef0f4; }
.timeline .block:hover rect { stroke: #000000; stroke-width: 1.2; }
.timeline .axis line { stroke: #8b93a3; }
.timeline .grid { stroke: #d4d8e0; stroke-width: 1; }
.timeline .curve { fill: none; stroke-width: 1.8; }
</style>
<defs>
<pattern id="hatched" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="1.6" height="6" fill="#ffffff" fill-opacity="0.28"/></pattern>
<pattern id="dotted" width="5" height="5" patternUnits="userSpaceOnUse"><circle cx="1.5" cy="1.5" r="0.9" fill="#10151f" fill-opacity="0.30"/></pattern>
<pattern id="striped" width="4" height="4" patternUnits="userSpaceOnUse"><rect width="4" height="1.2" fill="#ffffff" fill-opacity="0.24"/></pattern>
</defs>
)svg";
}

std::string_view pattern_of(ActionType type) {
  switch (type) {
    case ActionType::backward:
      return "hatched";
    case ActionType::backward_input:
      return "dotted";
    case ActionType::backward_weight:
      return "striped";
    default:
      return {};
  }
}

std::string escape_xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += static_cast<unsigned char>(c) < 32 && c != '\n' ? '?' : c;
  }
  return out;
}

std::string svg_text(double x, double y, std::string_view look, std::string_view text) {
  return fmt::format("<text class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\">{}</text>", look, x, y, escape_xml(text));
}

std::string svg_legend_block(double x, double y, const LegendEntry& entry) {
  const auto rect = [&](const std::string& fill) {
    return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"24\" height=\"16\" {}/>", x, y, fill);
  };
  if (entry.type == ActionType::idle) return rect("class=\"idle\" stroke=\"#c6cbd5\"");
  std::string out = rect(fmt::format("fill=\"{}\"", fill_of(make_action(0, entry.type, 2)).hex()));
  if (const auto pattern = pattern_of(entry.type); !pattern.empty()) out += rect(fmt::format("fill=\"url(#{})\"", pattern));
  return out;
}

double nice_step(double least) {
  if (!(least > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

}  // namespace ppengine::schedules
