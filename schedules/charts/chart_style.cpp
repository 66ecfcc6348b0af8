// Colours of the charts.
#include <ppengine/schedules/charts/chart_style.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ppengine::schedules {
namespace {

Color from_hsl(double hue, double saturation, double lightness) {
  auto channel = [&](double n) {
    const double k = std::fmod(n + hue / 30, 12);
    const double a = saturation * std::min(lightness, 1 - lightness);
    return static_cast<int>(std::lround(255 * (lightness - a * std::max(-1.0, std::min({k - 3, 9 - k, 1.0})))));
  };
  return {channel(0), channel(8), channel(4)};
}

struct Tone {
  double hue, saturation, darkest, lightest;
};

Tone tone_of(ActionType type) {
  switch (type) {
    case ActionType::forward:
      return {214, 0.72, 0.38, 0.66};
    case ActionType::backward:
      return {152, 0.52, 0.30, 0.56};
    case ActionType::backward_input:
      return {36, 0.88, 0.46, 0.70};
    case ActionType::backward_weight:
      return {276, 0.46, 0.44, 0.72};
    default:
      return {0, 0, 0.55, 0.55};
  }
}

}  // namespace

std::string Color::hex() const { return fmt::format("#{:02x}{:02x}{:02x}", red, green, blue); }

Color fill_of(const Action& action) {
  const Tone tone = tone_of(action.type);
  // Eight shades: up and down again, so that microbatch 8 does not jump.
  const unsigned step = action.microbatch % 14;
  const double shade = (step < 8 ? step : 14 - step) / 7.0;
  return from_hsl(tone.hue, tone.saturation, tone.darkest + shade * (tone.lightest - tone.darkest));
}

Color ink_on(const Color& fill) {
  const double brightness = 0.299 * fill.red + 0.587 * fill.green + 0.114 * fill.blue;
  return brightness > 140 ? Color{20, 24, 32} : Color{255, 255, 255};
}

Color rank_color(int rank, int ranks) {
  const double at = ranks > 1 ? static_cast<double>(rank) / (ranks - 1) : 0;
  return from_hsl(255 - 215 * at, 0.62, 0.36 + 0.14 * at);
}

}  // namespace ppengine::schedules
