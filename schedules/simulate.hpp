// A plan in time: when every action starts, how long ranks wait, what is alive, and which actions decide the makespan.
#pragma once

#include <vector>

#include <ppengine/schedules/costs.hpp>
#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

// How a send behaves.
//   overlapped  the message travels while both ranks go on computing; only the action that needs it waits
//   blocking    the sender is busy while the message travels, the receiver from its RECV until the message is there
//   rendezvous  blocking, and the message starts only when the other side has reached its RECV. Sends and receives that
//   stand
//               next to each other are started together, as the executor batches them
//   rendezvous_unbatched  the same without batches: the strictest transport there is
enum class SendMode { overlapped, blocking, rendezvous, rendezvous_unbatched };

struct SimulateOptions {
  SendMode send = SendMode::overlapped;  // the others need a lowered plan
};

struct RankTimes {
  double busy = 0;         // computing, also gathering and reducing
  double first_start = 0;  // of the rank's computations
  double last_end = 0;
  int peak_live_microbatches = 0;
  double peak_live_bytes = 0;
};

struct Simulation {
  double makespan = 0;
  double longest_span = 0;  // the longest time from a rank's first start to its last end
  std::vector<RankTimes> ranks;
  // When each action starts, by rank and index; both parts of an overlap start together. A message's start is that of
  // its transfer. Ends follow from the costs: see end_of().
  std::vector<std::vector<double>> start;

  // Idle time over ranks x makespan, or of one rank.
  double idle_share() const;
  double idle_share(int rank) const;
  // The same measured by the longest span, as the zero-bubble papers do.
  double idle_share_of_span() const;
  double idle_share_of_span(int rank) const;
};

// The plan must be valid. Throws PlanError with the cycle if it deadlocks under the send mode.
Simulation simulate(const Plan& plan, const Costs& costs = {}, const SimulateOptions& options = {});

// The end of the cell at `index` (of a message: of its transfer).
double end_of(const Plan& plan, const Simulation& simulation, const Costs& costs, int rank, std::size_t index);

// What a rank keeps alive, as steps: from `time` on.
struct MemoryPoint {
  double time = 0;
  int microbatches = 0;
  double bytes = 0;
};
std::vector<MemoryPoint> memory_curve(const Plan& plan, const Simulation& simulation, const Costs& costs, int rank);

// The chain of cells that decides the makespan, first to last: each one starts when the one before it ends (plus a
// message).
struct PathStep {
  int rank = 0;
  std::size_t index = 0;
};
std::vector<PathStep> critical_path(const Plan& plan, const Simulation& simulation, const Costs& costs);

}  // namespace ppengine::schedules
