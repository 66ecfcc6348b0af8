// What charts are drawn from: rows of actions with start and end. Simulated plans and measured runs both become one, so
// that the two pictures can be laid side by side.
#pragma once

#include <string>
#include <vector>

#include <ppengine/schedules/simulate.hpp>

namespace ppengine::schedules {

struct TimelineEvent {
  Action action;   // of an overlap: its forward part
  Action partner;  // of an overlap: its backward part; idle otherwise
  double start = 0;
  double end = 0;

  bool overlap() const { return partner.type != ActionType::idle; }
  std::string text() const;
};

struct TimelineRow {
  int rank = 0;
  std::vector<TimelineEvent> compute = {};   // F B I W, overlaps; UNSHARD, RESHARD and REDUCE_GRAD where they take time
  std::vector<TimelineEvent> messages = {};  // sends and receives
  std::vector<MemoryPoint> memory = {};      // steps; may be empty
  double idle_share = 0;
  int peak_live_microbatches = 0;
};

struct Timeline {
  std::string title;     // "1F1B, 8 ranks, 32 microbatches"
  std::string subtitle;  // "makespan 117, idle 17.9 %"
  std::string unit;      // of time: "ms"; empty for the simulation's own
  double end = 0;        // where the time axis ends: the makespan
  std::vector<TimelineRow> rows;

  // The stages of a row's rank in ascending order: their position tells a rank's first stage from its second.
  std::vector<int> stages_of(const TimelineRow& row) const;
};

Timeline make_timeline(const Plan& plan, const Simulation& simulation, const Costs& costs, const std::string& title);

// For measured rows: fills in idle_share, memory and peaks from the events, and `end` from the last of them.
void complete_timeline(Timeline& timeline, const Costs& costs = {});

}  // namespace ppengine::schedules
