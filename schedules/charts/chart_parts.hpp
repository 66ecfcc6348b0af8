// Pieces of the SVG: style sheet, patterns, text.
#pragma once

#include <string>
#include <string_view>

#include <ppengine/schedules/action.hpp>

namespace ppengine::schedules {

struct LegendEntry {
  ActionType type;  // idle: the background
  std::string text;
};

// Fonts, and the patterns that tell types apart without colour: B hatched, I dotted, W striped.
std::string svg_style();
std::string_view pattern_of(ActionType type);
// `look` is a class of the style sheet.
std::string svg_text(double x, double y, std::string_view look, std::string_view text);
std::string svg_legend_block(double x, double y, const LegendEntry& entry);
// 1, 2 or 5 times a power of ten, at least `least`.
double nice_step(double least);

}  // namespace ppengine::schedules
