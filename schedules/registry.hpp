// Schedules by name: the built-in ones, and your own.
//
//   Registry mine = builtin_schedules();
//   mine.add({.name = "one_by_one", .summary = "each microbatch to its end before the next one begins", .make = [](const PlanRequest& r) {
//     Plan plan = empty_plan(r.ranks, r.stages, r.microbatches, r.stage_rank);
//     for (int m = 0; m < r.microbatches; ++m)
//       for (int s = 0; s < r.stages; ++s)
//         for (ActionType type : {ActionType::forward, ActionType::backward}) plan.of(plan.rank_of(s)).push_back(make_action(s, type, m));
//     return plan;
//   }});
//   Plan plan = mine.make("One_By_One", {.ranks = 4, .stages = 4, .microbatches = 8});
//
// A schedule that is only needed once can also be a CSV file (csv.hpp).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/schedules/costs.hpp>
#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

struct PlanRequest {
  int ranks = 1;
  int stages = 0;  // 0: the schedule's default
  int microbatches = 1;
  std::vector<int> stage_rank = {};  // empty: the schedule's own placement
  Costs costs = {};                  // what `auto` optimizes for; the others do not look at it
  int memory_limit = 0;              // for `auto`: live microbatches a rank may hold, in units of one stage; 0: no limit
};

struct Schedule {
  std::string name;
  std::string summary;
  std::string title = {};      // for charts; empty: the name
  int stages_per_rank = 0;     // 0: any number
  int default_per_rank = 1;    // stages a rank gets when nobody says
  bool inference = false;      // forward only
  bool any_placement = false;  // `make` heeds PlanRequest::stage_rank; others can only have their ranks renumbered
  // Empty: `make` chooses where the request does not say.
  std::function<std::vector<int>(int ranks, int stages)> placement = loop_placement;
  std::function<Plan(const PlanRequest&)> make = {};  // called with checked numbers
};

class Registry {
 public:
  // Throws ConfigError if the name is taken.
  void add(Schedule schedule);
  // Names in any case; throws ConfigError that lists the known ones.
  const Schedule& find(std::string_view name) const;
  std::vector<std::string> names() const;
  // Checks the request, makes the plan and validates it.
  Plan make(std::string_view name, const PlanRequest& request) const;

 private:
  std::map<std::string, Schedule> schedules_;  // by lower-case name
};

// gpipe, 1f1b, interleaved1f1b, loopedbfs, interleavedzerobubble, zbvzerobubble, dualpipev, vhalf, vmin, auto, forward.
const Registry& builtin_schedules();

// The common case: a built-in schedule on its own placement.
Plan make_plan(std::string_view schedule, int ranks, int stages, int microbatches);
// 2P for the V-shaped schedules, interleaved1f1b and loopedbfs (which with one stage per rank are 1F1B and GPipe), P for the others.
int default_stages(std::string_view schedule, int ranks);

}  // namespace ppengine::schedules
