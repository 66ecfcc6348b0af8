// How many blocks of activations and gradients a stage needs at once when a rank walks its plan.
#pragma once

#include <ppengine/schedules/plan.hpp>

namespace ppengine::engine {

struct BlockCount {
  int activations = 0;  // from the receive (or the local neighbour's forward) until B or W
  int gradients = 0;    // from the receive (or the local neighbour's backward) until B or W is done and SEND_B posted
};

// The plan must be lowered.
BlockCount count_blocks(const schedules::Plan& plan, int stage);

}  // namespace ppengine::engine
