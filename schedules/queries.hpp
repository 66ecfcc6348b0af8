// What an engine has to know about a plan before it allocates: how much is alive at the same time.
#pragma once

#include <vector>

#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

// The largest numbers that occur on one rank, for one of its stages.
struct StagePeaks {
  int stage = 0;
  int live_microbatches = 0;         // activations: from F until B, or until W where the backward is split
  int pending_weights = 0;           // between I and W
  int received_activations = 0;      // received (or made by a neighbour stage on this rank) and not yet taken by F
  int received_gradients = 0;        // the same for B or I
  int outputs_without_gradient = 0;  // from F until B or I: outputs whose gradient is still to come
};

// For every stage of the rank, in ascending order of stages. Works on both formats; in a compute_only plan a message
// counts as received right before its use. In an inference plan a microbatch is alive only during its F.
std::vector<StagePeaks> stage_peaks(const Plan& plan, int rank);

// The largest sum over the rank's stages at any one time.
int peak_live_microbatches(const Plan& plan, int rank);

}  // namespace ppengine::schedules
