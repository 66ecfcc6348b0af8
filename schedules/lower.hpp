// Lowering: from compute_only to compute_comms, in passes that are pure functions of a plan.
#pragma once

#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

struct LowerOptions {
  bool merge = false;         // adjacent I, W of one pair become B
  bool unshard = true;        // gather and free sharded parameters around their use
  int max_active_stages = 3;  // how many stages of a rank may be gathered at the same time
  bool reduce_grad = true;    // reduce a stage's gradients after its last backward
  bool defer_recv = false;    // receive as late as possible: by PyTorch's rule where no transport can deadlock on it
};

// All passes in order: merge, unshard, reduce_grad, send/recv, defer_recv. Takes the plan by value so that a caller who
// moves it in does not hold both in memory. The result equals PyTorch's compute_comms table action for action.
Plan lower(Plan plan, const LowerOptions& options = {});

// The passes, in the order in which lower() runs them. The first three keep idle cells out of their result.
Plan merge_backward(Plan plan);
Plan add_unshard(Plan plan, int max_active_stages = 3);
Plan add_reduce_grad(Plan plan);
Plan add_send_recv(Plan plan);
// PyTorch's rule: each RECV right before its consumer; towards one peer the lower rank posts what is pending before its
// sends. This is safe where sends are buffered. Where a send waits for its receive it can deadlock (the simulator shows
// the cycle).
Plan defer_recv_as_pytorch(Plan plan);
// Each RECV moves down past computations until its consumer or the rank's next message. The messages keep the order in
// which add_send_recv() put them, which is one that all ranks share, so that no transport can deadlock.
Plan defer_recv_safely(Plan plan);
// PyTorch's rule where its result does not deadlock on the strictest transport, the safe one elsewhere.
Plan defer_recv(Plan plan);

}  // namespace ppengine::schedules
