// What actions cost, in any unit of time: the input of the simulation and of the `auto` schedule.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ppengine/schedules/action.hpp>

namespace ppengine::schedules {

struct StageCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double activation_bytes = 1;  // what one live microbatch of this stage keeps in memory
};

struct Costs {
  std::vector<StageCosts> stages = std::vector<StageCosts>(1);  // one for all stages, or one each
  double communication = 0;                                     // a fixed time per message between ranks
  double latency = 0;                                           // plus this,
  double bandwidth = 0;                                         // plus message_bytes / bandwidth where a bandwidth is given
  double message_bytes = 0;
  double unshard = 0;
  double reduce_grad = 0;
  double overlap_factor = 1;  // OVERLAP_F_B takes this share of F + B, and never less than the longer of the two

  const StageCosts& of(int stage) const { return stages[stages.size() == 1 ? 0 : static_cast<std::size_t>(stage)]; }
  double message() const { return communication + latency + (bandwidth > 0 ? message_bytes / bandwidth : 0); }
  // One action alone; B costs I + W. Messages and idle cells cost nothing here.
  double compute(const Action& action) const;
  // The cell that starts at `first`: one action, or an overlap.
  double cell(const Action* first) const;
};

// Reads "F=1,I=1,W=1,comm=0" into `costs`; further keys: latency, bandwidth, bytes, unshard, reduce. Throws
// ConfigError.
void parse_costs(std::string_view text, Costs& costs);
// Reads a file with one line per stage: F,I,W or F,I,W,activation_bytes; a header line is skipped. Throws FileError.
void load_stage_costs(const std::string& path, Costs& costs);
// Checks that numbers are finite and not negative, and that there is one entry per stage. Throws ConfigError.
void check_costs(const Costs& costs, int stages);

}  // namespace ppengine::schedules
