// List scheduling with a limit on memory. No deadlock can arise: a rank keeps one place free for each of its later
// stages, so the microbatch that is furthest ahead can always go on.
#include <ppengine/schedules/search/list_scheduler.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <queue>

namespace ppengine::schedules {
namespace {

constexpr double unknown = std::numeric_limits<double>::infinity();

class ListScheduler {
 public:
  ListScheduler(const PlanRequest& request, const Policy& policy)
      : plan_(empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank)),
        costs_(request.costs),
        policy_(policy),
        message_(costs_.message()),
        m_(plan_.microbatches),
        ranks_(static_cast<std::size_t>(plan_.ranks)),
        next_forward_(static_cast<std::size_t>(plan_.stages), 0),
        next_backward_(next_forward_) {
    const auto pairs = static_cast<std::size_t>(plan_.stages) * static_cast<std::size_t>(m_);
    activation_.assign(pairs, unknown);
    gradient_.assign(pairs, unknown);
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      RankState& here = ranks_[static_cast<std::size_t>(rank)];
      here.stages = local_stages(plan_, rank);
      const int all = static_cast<int>(here.stages.size()) * m_;
      here.limit = policy.limit > 0 ? std::min(all, policy.limit - static_cast<int>(policy.limit_slope * here.stages.front())) : all;
      feasible_ = feasible_ && here.limit >= static_cast<int>(here.stages.size());
    }
  }

  std::optional<Plan> run() {
    if (!feasible_) return std::nullopt;
    for (int rank = 0; rank < plan_.ranks; ++rank) at(0, rank);
    while (!events_.empty()) {
      const auto [time, rank] = events_.top();
      events_.pop();
      RankState& here = ranks_[static_cast<std::size_t>(rank)];
      if (time < here.free_at || time == here.looked_at) continue;
      here.looked_at = time;
      choose(rank, time);
    }
    return std::move(plan_);
  }

 private:
  struct RankState {
    std::vector<int> stages;
    std::vector<Action> pending;  // W that wait, oldest first from `weights` on
    std::size_t weights = 0;
    int live = 0, limit = 0;
    double free_at = 0, looked_at = -1;
    bool last_was_forward = false;
  };
  using Event = std::pair<double, int>;

  std::size_t pair(int stage, int microbatch) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(m_) + static_cast<std::size_t>(microbatch);
  }
  void at(double time, int rank) { events_.push({time, rank}); }

  // When a stage's next forward or backward has its input; unknown if it is not made yet or there is none left.
  double forward_time(int stage) const {
    const int mb = next_forward_[static_cast<std::size_t>(stage)];
    if (mb == m_) return unknown;
    return stage == 0 ? 0 : activation_[pair(stage, mb)];
  }
  double backward_time(int stage) const {
    const int mb = next_backward_[static_cast<std::size_t>(stage)];
    if (mb >= next_forward_[static_cast<std::size_t>(stage)]) return unknown;
    return gradient_[pair(stage, mb)];
  }
  bool has_room(const RankState& here, std::size_t local) const {
    return here.live + 1 + static_cast<int>(here.stages.size() - 1 - local) <= here.limit;
  }

  // Of the stages whose forward (or backward) is ready: the latest stage, or the oldest microbatch. -1 if none is.
  int best_stage(const RankState& here, double time, bool forward, double& next_known) const {
    int best = -1;
    for (std::size_t local = 0; local < here.stages.size(); ++local) {
      const int stage = here.stages[local];
      const double when = forward ? forward_time(stage) : backward_time(stage);
      if (when == unknown || (forward && !has_room(here, local))) continue;
      next_known = std::min(next_known, std::max(when, time));
      if (when > time) continue;
      const auto& next = forward ? next_forward_ : next_backward_;
      const bool better =
          best < 0 || (policy_.deep_first == forward) || next[static_cast<std::size_t>(stage)] < next[static_cast<std::size_t>(best)];
      if (better) best = stage;
    }
    return best;
  }

  void choose(int rank, double time) {
    RankState& here = ranks_[static_cast<std::size_t>(rank)];
    double next_known = unknown;
    const int forward = best_stage(here, time, true, next_known), backward = best_stage(here, time, false, next_known);
    const bool take_forward = forward >= 0 && (backward < 0 || policy_.prefer == Policy::Prefer::forward ||
                                               (policy_.prefer == Policy::Prefer::alternate && !here.last_was_forward));
    if (take_forward) return run_forward(rank, forward, time);
    if (backward >= 0) return run_backward(rank, backward, time);
    if (here.weights < here.pending.size()) {
      const Action& w = here.pending[here.weights];
      if (next_known == unknown || next_known - time >= policy_.patience * costs_.compute(w)) return run_weight(rank, time);
    }
    if (next_known != unknown && next_known > time) at(next_known, rank);
  }

  void occupy(int rank, const Action& a, double time) {
    RankState& here = ranks_[static_cast<std::size_t>(rank)];
    plan_.of(rank).push_back(a);
    here.free_at = time + costs_.compute(a);
    here.looked_at = -1;
    at(here.free_at, rank);
  }
  void deliver(int from, int to, double& slot, double time) {
    slot = time + (from == to ? 0 : message_);
    at(std::max(slot, ranks_[static_cast<std::size_t>(to)].free_at), to);
  }

  void run_forward(int rank, int stage, double time) {
    RankState& here = ranks_[static_cast<std::size_t>(rank)];
    const int mb = next_forward_[static_cast<std::size_t>(stage)]++;
    occupy(rank, make_action(stage, ActionType::forward, mb), time);
    ++here.live;
    here.last_was_forward = true;
    if (stage + 1 == plan_.stages)
      gradient_[pair(stage, mb)] = here.free_at;
    else
      deliver(rank, plan_.rank_of(stage + 1), activation_[pair(stage + 1, mb)], here.free_at);
  }
  void run_backward(int rank, int stage, double time) {
    RankState& here = ranks_[static_cast<std::size_t>(rank)];
    const int mb = next_backward_[static_cast<std::size_t>(stage)]++;
    occupy(rank, make_action(stage, policy_.split ? ActionType::backward_input : ActionType::backward, mb), time);
    here.last_was_forward = false;
    if (policy_.split)
      here.pending.push_back(make_action(stage, ActionType::backward_weight, mb));
    else
      --here.live;
    if (stage > 0) deliver(rank, plan_.rank_of(stage - 1), gradient_[pair(stage - 1, mb)], here.free_at);
  }
  void run_weight(int rank, double time) {
    RankState& here = ranks_[static_cast<std::size_t>(rank)];
    occupy(rank, here.pending[here.weights++], time);
    --here.live;
  }

  Plan plan_;
  const Costs& costs_;
  Policy policy_;
  double message_;
  int m_;
  bool feasible_ = true;
  std::vector<RankState> ranks_;
  std::vector<int> next_forward_, next_backward_;
  std::vector<double> activation_, gradient_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

std::string Policy::text() const {
  const char* first = prefer == Prefer::backward ? "backward first" : prefer == Prefer::forward ? "forward first" : "by turns";
  return fmt::format("list scheduling, {}, {}, {}", first, deep_first ? "later stages first" : "older microbatches first",
                     split ? fmt::format("W after {} of its cost", patience) : "whole backward");
}

std::optional<Plan> list_schedule(const PlanRequest& request, const Policy& policy) { return ListScheduler(request, policy).run(); }

}  // namespace ppengine::schedules
