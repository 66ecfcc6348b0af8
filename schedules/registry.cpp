// Schedules by name: checks of a request, placement, and the built-in list.
#include <ppengine/schedules/registry.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include <ppengine/schedules/check/validate.hpp>
#include <ppengine/schedules/generators/generators.hpp>

namespace ppengine::schedules {
namespace {

std::string lower_case(std::string_view name) {
  std::string result(name);
  for (char& c : result) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return result;
}

void check_numbers(const Schedule& schedule, const PlanRequest& r) {
  empty_plan(r.ranks, r.stages, r.microbatches, {});  // sane on their own
  if (!r.stage_rank.empty() && schedule.any_placement) return;
  if (r.stages % r.ranks != 0)
    throw ConfigError(fmt::format("{} stages cannot be spread evenly over {} ranks; use a multiple of {}", r.stages, r.ranks, r.ranks));
  const int per_rank = r.stages / r.ranks;
  if (schedule.stages_per_rank != 0 && per_rank != schedule.stages_per_rank)
    throw ConfigError(fmt::format("{} needs exactly {} stage{} per rank, but {} stages on {} ranks are {}; use {} stages", schedule.name,
                                  schedule.stages_per_rank, schedule.stages_per_rank == 1 ? "" : "s", r.stages, r.ranks, per_rank,
                                  r.ranks * schedule.stages_per_rank));
}

void check_placement(const PlanRequest& r) {
  if (static_cast<int>(r.stage_rank.size()) != r.stages)
    throw ConfigError(fmt::format("the placement names a rank for {} stages, but there are {} stages", r.stage_rank.size(), r.stages));
  std::vector<bool> used(static_cast<std::size_t>(r.ranks), false);
  for (int s = 0; s < r.stages; ++s) {
    const int rank = r.stage_rank[static_cast<std::size_t>(s)];
    if (rank < 0 || rank >= r.ranks)
      throw ConfigError(fmt::format("the placement puts stage {} on rank {}, but ranks are 0 to {}", s, rank, r.ranks - 1));
    used[static_cast<std::size_t>(rank)] = true;
  }
  const auto unused = std::find(used.begin(), used.end(), false);
  if (unused != used.end()) throw ConfigError(fmt::format("the placement gives rank {} no stage", unused - used.begin()));
}

// The renumbering that turns `from` into `to`, or nothing if they differ by more than the names of the ranks.
std::vector<int> renumbering(const std::vector<int>& from, const std::vector<int>& to, int ranks) {
  std::vector<int> map(static_cast<std::size_t>(ranks), -1), back = map;
  for (std::size_t s = 0; s < from.size(); ++s) {
    int& image = map[static_cast<std::size_t>(from[s])];
    int& origin = back[static_cast<std::size_t>(to[s])];
    if (image < 0 && origin < 0) image = to[s], origin = from[s];
    if (image != to[s] || origin != from[s]) return {};
  }
  return map;
}

}  // namespace

void Registry::add(Schedule schedule) {
  const std::string key = lower_case(schedule.name);
  if (key.empty() || !schedule.make) throw ConfigError("a schedule needs a name and a function that makes its plan");
  if (!schedules_.emplace(key, std::move(schedule)).second) throw ConfigError(fmt::format("there is already a schedule named {}", key));
}

const Schedule& Registry::find(std::string_view name) const {
  const auto found = schedules_.find(lower_case(name));
  if (found == schedules_.end()) throw ConfigError(fmt::format("unknown schedule \"{}\"; known are {}", name, fmt::join(names(), ", ")));
  return found->second;
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> result;
  result.reserve(schedules_.size());
  for (const auto& [key, schedule] : schedules_) result.push_back(schedule.name);
  return result;
}

Plan Registry::make(std::string_view name, const PlanRequest& request) const {
  const Schedule& schedule = find(name);
  PlanRequest r = request;
  // 1. Numbers.
  if (r.stages == 0 && r.ranks > 0 && r.ranks <= max_ranks)
    r.stages = r.stage_rank.empty() ? r.ranks * schedule.default_per_rank : static_cast<int>(r.stage_rank.size());
  check_numbers(schedule, r);
  // 2. Placement: the schedule's own, one from a file, or the schedule's own with the ranks renumbered.
  const std::vector<int> wanted = r.stage_rank;
  if (!wanted.empty()) check_placement(r);
  std::vector<int> renumber;
  if (schedule.placement && (wanted.empty() || !schedule.any_placement)) {
    r.stage_rank = schedule.placement(r.ranks, r.stages);
    if (!wanted.empty() && wanted != r.stage_rank) {
      renumber = renumbering(r.stage_rank, wanted, r.ranks);
      if (renumber.empty())
        throw ConfigError(
            fmt::format("{} cannot follow this placement: its own is {}, and only the ranks may be "
                        "renumbered; use auto, gpipe, loopedbfs or forward for any placement",
                        schedule.name, fmt::join(r.stage_rank, ",")));
    }
  }
  // 3. The plan.
  Plan plan = schedule.make(r);
  if (!renumber.empty()) {
    auto rows = std::move(plan.actions);
    plan.actions.assign(rows.size(), {});
    for (std::size_t rank = 0; rank < rows.size(); ++rank) plan.of(renumber[rank]) = std::move(rows[rank]);
    plan.stage_rank = wanted;
  }
  validate(plan);
  return plan;
}

const Registry& builtin_schedules() {
  static const Registry builtin = [] {
    Registry r;
    r.add({.name = "gpipe",
           .summary = "all forwards, then all backwards",
           .title = "GPipe",
           .stages_per_rank = 1,
           .any_placement = true,
           .make = generators::gpipe});
    r.add({.name = "1f1b",
           .summary = "one forward, one backward",
           .title = "1F1B",
           .stages_per_rank = 1,
           .make = generators::one_forward_one_backward});
    r.add({.name = "interleaved1f1b",
           .summary = "1F1B with several stages per rank",
           .title = "Interleaved 1F1B",
           .default_per_rank = 2,
           .make = generators::interleaved_1f1b});
    r.add({.name = "loopedbfs",
           .summary = "breadth first over several stages per rank",
           .title = "Looped BFS",
           .default_per_rank = 2,
           .any_placement = true,
           .make = generators::looped_bfs});
    r.add({.name = "interleavedzerobubble",
           .summary = "split backward; ZB1P with one stage per rank",
           .title = "Interleaved zero bubble",
           .make = generators::interleaved_zero_bubble});
    r.add({.name = "zbvzerobubble",
           .summary = "zero bubble on a V",
           .title = "ZB-V zero bubble",
           .stages_per_rank = 2,
           .default_per_rank = 2,
           .placement = v_placement,
           .make = generators::zbv_zero_bubble});
    r.add({.name = "dualpipev",
           .summary = "overlapped forward and backward on a V",
           .title = "DualPipeV",
           .stages_per_rank = 2,
           .default_per_rank = 2,
           .placement = v_placement,
           .make = generators::dual_pipe_v});
    r.add({.name = "vhalf",
           .summary = "half of 1F1B's activation memory, on a V",
           .title = "V-Half",
           .stages_per_rank = 2,
           .default_per_rank = 2,
           .placement = v_placement,
           .make = generators::v_half});
    r.add({.name = "vmin",
           .summary = "a third of 1F1B's activation memory, on a V",
           .title = "V-Min",
           .stages_per_rank = 2,
           .default_per_rank = 2,
           .placement = v_placement,
           .make = generators::v_min});
    r.add({.name = "auto",
           .summary = "the shortest order found for given costs and memory",
           .title = "Auto",
           .any_placement = true,
           .placement = {},
           .make = generators::automatic});
    r.add({.name = "forward",
           .summary = "inference",
           .title = "Forward only",
           .inference = true,
           .any_placement = true,
           .make = generators::forward_only});
    return r;
  }();
  return builtin;
}

Plan make_plan(std::string_view schedule, int ranks, int stages, int microbatches) {
  return builtin_schedules().make(schedule, {.ranks = ranks, .stages = stages, .microbatches = microbatches});
}

int default_stages(std::string_view schedule, int ranks) { return ranks * builtin_schedules().find(schedule).default_per_rank; }

}  // namespace ppengine::schedules
