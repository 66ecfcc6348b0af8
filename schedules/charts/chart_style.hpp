// The look that all charts share.
#pragma once

#include <cstdint>
#include <string>

#include <ppengine/schedules/action.hpp>

namespace ppengine::schedules {

struct Color {
  int red, green, blue;
  std::string hex() const;
};

// The colour of a computation: hue by type, shade by microbatch. Neighbouring microbatches differ visibly, far ones may
// repeat.
Color fill_of(const Action& action);
// Black or white, whichever reads better on it.
Color ink_on(const Color& fill);
// From dark to light over a pipeline's ranks: the lines of the memory panel.
Color rank_color(int rank, int ranks);

}  // namespace ppengine::schedules
