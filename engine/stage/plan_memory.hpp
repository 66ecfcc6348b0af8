// How many blocks of activations and gradients a stage needs at once when a rank walks its plan.
#pragma once

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/schedules/plan.hpp>

namespace ppengine::engine {

struct BlockCount {
  int activations = 0;  // from the receive (or the local neighbour's forward) until B or W
  int gradients = 0;    // from the receive (or the local neighbour's backward) until B or W is done and SEND_B posted
};

// The plan must be lowered.
BlockCount count_blocks(const schedules::Plan& plan, StageId stage);

// Sharded: how many of a rank's stages are gathered at once at most, and how many have whole gradients (from their first weight gradient
// until REDUCE_GRAD). ConfigError where the plan uses a stage that it has not gathered.
struct ActiveCount {
  int gathered = 0, gradients = 0;
};
ActiveCount count_active(const schedules::Plan& plan, int rank);

}  // namespace ppengine::engine
