// A plan: who runs what in which order. Pure data; made by a generator or read from a file, lowered, validated,
// simulated, drawn and executed by the other files of this folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/schedules/action.hpp>

namespace ppengine::schedules {

// compute_only: F B I W and overlaps, idle cells allowed. compute_comms: everything, no idle cells; this is what runs.
enum class PlanFormat : std::uint8_t { compute_only, compute_comms };

struct Plan {
  int ranks = 0;
  int stages = 0;
  int microbatches = 0;
  PlanFormat format = PlanFormat::compute_only;
  std::vector<int> stage_rank;               // the rank of each stage
  std::vector<std::vector<Action>> actions;  // by rank; the parts of an overlap are adjacent

  bool lowered() const { return format == PlanFormat::compute_comms; }
  int rank_of(int stage) const { return stage_rank[static_cast<std::size_t>(stage)]; }
  int rank_of(StageId stage) const { return rank_of(stage.number()); }
  const std::vector<Action>& of(int rank) const { return actions[static_cast<std::size_t>(rank)]; }
  std::vector<Action>& of(int rank) { return actions[static_cast<std::size_t>(rank)]; }

  friend bool operator==(const Plan&, const Plan&) = default;
};

// Limits that keep an absurd request from eating the machine's memory: far above any real pipeline.
constexpr int max_ranks = 16384;
constexpr std::int64_t max_plan_actions = std::int64_t{1} << 26;

// A plan that cannot be carried out. The text names rank, column and cell.
class PlanError : public ConfigError {
 public:
  PlanError(int rank, int column, const std::string& cell, const std::string& reason);
  explicit PlanError(const std::string& reason) : ConfigError(reason) {}
  int rank() const { return rank_; }
  int column() const { return column_; }

 private:
  int rank_ = -1;
  int column_ = -1;
};

// Actions are indexed flat (both parts of an overlap count); files and messages count cells.
int column_of(const std::vector<Action>& actions, std::size_t index);
// Throws the PlanError for the action at `index` of `rank`.
[[noreturn]] void reject(const Plan& plan, int rank, std::size_t index, const std::string& reason);

// Stage s on rank s % p.
std::vector<int> loop_placement(int ranks, int stages);
// The snake 0123 3210 0123 ...
std::vector<int> v_placement(int ranks, int stages);
// The stages of one rank, ascending.
std::vector<int> local_stages(const Plan& plan, int rank);

bool uses_overlap(const Plan& plan);
bool uses_split_backward(const Plan& plan);
// No backward at all.
bool is_inference(const Plan& plan);

// An empty plan with rows for every rank; checks that the numbers are sane (ConfigError).
Plan empty_plan(int ranks, int stages, int microbatches, std::vector<int> stage_rank);

}  // namespace ppengine::schedules
