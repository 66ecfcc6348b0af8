// Charts of timelines: for the terminal, as a picture, as a page. One look: F blue, B green, I amber, W violet; and
// without colour a pattern and a letter each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ppengine/schedules/timeline.hpp>

namespace ppengine::schedules {

// What a cell says: "F3" its microbatch, "2F3" its stage too. automatic: the stage where a rank has several, in the terminal; pictures show
// a rank's second and further stages by a bar, and all of it where the pointer is.
enum class CellLabels { automatic, microbatch, stage };

struct TextChart {
  bool color = false;  // ANSI colours
  int width = 100;     // columns; longer timelines are cut into bands, very long ones are drawn without labels
  int bands = 12;      // as many of them at most
  CellLabels labels = CellLabels::automatic;
};
std::string chart_text(const Timeline& timeline, const TextChart& options = {});

// A self-contained SVG. Throws ConfigError above max_drawn_events.
std::string chart_svg(const Timeline& timeline, CellLabels labels = CellLabels::automatic);
// Several in one picture, one below the other.
std::string chart_svg(const std::vector<Timeline>& timelines, CellLabels labels = CellLabels::automatic);

// A self-contained page with one chart below the other (a simulated and a measured timeline, say), as wide as the window, zoom and hover.
std::string chart_html(const std::vector<Timeline>& timelines, const std::string& heading, CellLabels labels = CellLabels::automatic);

// Text as it may stand in such pages.
std::string escape_xml(std::string_view text);

constexpr std::size_t max_drawn_events = 200000;

}  // namespace ppengine::schedules
