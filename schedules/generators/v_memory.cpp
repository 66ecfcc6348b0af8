// V-Half and V-Min (https://arxiv.org/abs/2405.15362, "Pipeline parallelism with controllable memory"): two stages per
// rank in a V. A building block says when one microbatch's F and I run on each rank; repeated every six steps it never
// collides with itself, and the shorter a microbatch's way through it, the fewer are alive: half of 1F1B's activations,
// or a third.
#include <algorithm>
#include <array>

#include <ppengine/schedules/generators/generators.hpp>

namespace ppengine::schedules::generators {
namespace {

constexpr int period = 6;  // F, I and W of two stages
// A rank's four actions of one microbatch: F0, F1, I1, I0 (the way down, up, down and up the V).
using Block = std::array<int, 4>;

Block v_min_block(int p, int rank) {
  const int gap = p % 3 == 0 ? 2 : 0;  // keeps the four apart modulo the period
  return {rank, 2 * p - rank - 1, 2 * p + gap + rank, 4 * p + gap - rank - 1};
}
Block v_half_block(int p, int rank) {
  const int gap = p % 2 == 0 ? 3 : 0;
  return {2 * rank, 3 * p - rank - 2, 3 * p + gap + 2 * rank - 1, 6 * p + gap - rank - 2};
}

// The activations that the repeated block keeps alive on a rank, with W in the free steps.
int block_peak(const Block& block, int microbatches) {
  std::array<int, 4> next{};
  int live = 0, pending = 0, peak = 0;
  for (int time = 0, end = block[3] + period * microbatches; time < end; ++time) {
    bool busy = false;
    for (std::size_t k = 0; k < 4; ++k) {
      if (next[k] == microbatches || block[k] + period * next[k] != time) continue;
      ++next[k];
      busy = true;
      k < 2 ? ++live : ++pending;
    }
    if (!busy && pending > 0) --pending, --live;
    peak = std::max(peak, live);
  }
  return peak;
}

// One rank on its way through the plan.
struct RankState {
  Block block{};
  std::array<int, 4> next{};                     // microbatch of the next F0, F1, I1, I0
  std::array<std::vector<int>, 4> done_at = {};  // step after which each has run
  std::vector<Action> pending = {};              // I without W
  std::size_t weights = 0;
  int live = 0;
};

class BlockSchedule {
 public:
  BlockSchedule(const PlanRequest& request, Block (*block)(int, int))
      : plan_(empty_plan(request.ranks, request.stages, request.microbatches, request.stage_rank)),
        p_(plan_.ranks),
        m_(plan_.microbatches),
        ranks_(static_cast<std::size_t>(p_)) {
    for (int rank = 0; rank < p_; ++rank) {
      RankState& s = ranks_[static_cast<std::size_t>(rank)];
      s.block = block(p_, rank);
      for (auto& times : s.done_at) times.assign(static_cast<std::size_t>(m_), never);
      limit_ = std::max(limit_, block_peak(s.block, std::min(m_, 2 * p_ + 4)));
      plan_.of(rank).reserve(static_cast<std::size_t>(period) * static_cast<std::size_t>(m_));
    }
  }

  // Step by step, all actions taking one: F and I in the order of the block, W wherever the next of them has to wait.
  // When a rank has no new microbatch to begin, whatever is ready runs.
  Plan run() {
    std::int64_t left = std::int64_t{period} * m_ * p_;
    for (int time = 0; left > 0; ++time)
      for (int rank = 0; rank < p_; ++rank)
        if (step(rank, time)) --left;
    return std::move(plan_);
  }

 private:
  static constexpr int never = 1 << 30;

  bool ready(int rank, std::size_t k, int time) const {
    const RankState& here = ranks_[static_cast<std::size_t>(rank)];
    const auto mb = static_cast<std::size_t>(here.next[k]);
    if (k < 2 && here.live >= limit_) return false;
    const bool down = k % 2 == 0;  // F0 and I1 come from the rank before, F1 and I0 from the one behind
    const int from = down ? rank - 1 : rank + 1;
    if (from >= 0 && from < p_) return ranks_[static_cast<std::size_t>(from)].done_at[k][mb] <= time;
    return k == 0 || here.done_at[k - 1][mb] <= time;
  }

  bool step(int rank, int time) {
    RankState& here = ranks_[static_cast<std::size_t>(rank)];
    std::array<std::size_t, 4> order{0, 1, 2, 3};
    auto due = [&](std::size_t k) { return here.next[k] == m_ ? never : here.block[k] + period * here.next[k]; };
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return due(a) < due(b); });
    const bool draining = here.next[0] == m_;
    for (const std::size_t k : order) {
      if (here.next[k] == m_) break;
      if (ready(rank, k, time)) {
        run_action(rank, k, time);
        return true;
      }
      if (!draining) break;
    }
    if (here.weights == here.pending.size()) return false;
    plan_.of(rank).push_back(here.pending[here.weights++]);
    --here.live;
    return true;
  }

  void run_action(int rank, std::size_t k, int time) {
    RankState& here = ranks_[static_cast<std::size_t>(rank)];
    const int mb = here.next[k]++;
    here.done_at[k][static_cast<std::size_t>(mb)] = time + 1;
    const int stage = k == 0 || k == 3 ? rank : 2 * p_ - 1 - rank;
    if (k < 2) {
      plan_.of(rank).push_back(make_action(stage, ActionType::forward, mb));
      ++here.live;
    } else {
      plan_.of(rank).push_back(make_action(stage, ActionType::backward_input, mb));
      here.pending.push_back(make_action(stage, ActionType::backward_weight, mb));
    }
  }

  Plan plan_;
  int p_, m_, limit_ = 0;
  std::vector<RankState> ranks_;
};

}  // namespace

Plan v_half(const PlanRequest& request) { return BlockSchedule(request, v_half_block).run(); }
Plan v_min(const PlanRequest& request) { return BlockSchedule(request, v_min_block).run(); }

}  // namespace ppengine::schedules::generators
