// DualPipeV (https://arxiv.org/abs/2412.19437, cut in half into a V): forwards of one chunk run together with backwards
// of the other. Eight phases, as in DeepSeek's code.
#include <fmt/format.h>

#include <ppengine/schedules/generators/generators.hpp>

namespace ppengine::schedules::generators {
namespace {

// One rank's row with its counters. B and I of a chunk share one microbatch counter; W takes the oldest pending I.
class DualRow {
 public:
  DualRow(std::vector<Action>& actions, int stage0, int stage1) : row_(actions), stage_{stage0, stage1} {}
  void F(int c) { row_.forward(stage_[c], forwards_[c]++); }
  void B(int c) { row_.backward(stage_[c], backwards_[c]++); }
  void I(int c) {
    pending_.push_back(make_action(stage_[c], ActionType::backward_weight, backwards_[c]));
    row_.backward_input(stage_[c], backwards_[c]++);
  }
  void W() {
    if (weights_ == pending_.size()) return;
    const Action& oldest = pending_[weights_++];
    row_.backward_weight(oldest.stage, static_cast<int>(oldest.microbatch));
  }
  void overlap(int f, int b) { row_.overlap(stage_[f], forwards_[f]++, stage_[b], backwards_[b]++); }

 private:
  Row row_;
  int stage_[2], forwards_[2] = {0, 0}, backwards_[2] = {0, 0};
  std::vector<Action> pending_;
  std::size_t weights_ = 0;
};

}  // namespace

Plan dual_pipe_v(const PlanRequest& request) {
  const int p = request.ranks, m = request.microbatches;
  if (m < 2 * p)
    throw ConfigError(
        fmt::format("dualpipev needs at least as many microbatches as stages: {} stages, {} microbatches; "
                    "use {} microbatches or zbvzerobubble",
                    2 * p, m, 2 * p));
  Plan plan = empty_plan(p, request.stages, m, request.stage_rank);
  for (int r = 0; r < p; ++r) {
    plan.of(r).reserve(static_cast<std::size_t>(4L * m + 2L * p));
    DualRow row(plan.of(r), r, 2 * p - 1 - r);
    // 1. F0
    for (int i = 0; i < 2 * (p - r - 1); ++i) row.F(0);
    // 2. F0 F1
    for (int i = 0; i < r + 1; ++i) row.F(0), row.F(1);
    // 3. I1 W1 F1
    for (int i = 0; i < p - r - 1; ++i) row.I(1), row.W(), row.F(1);
    // 4. The main phase: F0 & B1, F1 & B0. On the last rank the first pair does not overlap, which shortens the bubble.
    for (int i = 0; i < m - 2 * p + r + 1; ++i) {
      if (i == 0 && r == p - 1)
        row.F(0), row.B(1);
      else
        row.overlap(0, 1);
      row.overlap(1, 0);
    }
    // 5. B1, F1 & B0
    for (int i = 0; i < p - r - 1; ++i) row.B(1), row.overlap(1, 0);
    // 6. B1 B0, which turn into I for good in the middle: odd ranks before B1, even ranks between the two.
    const int turn = (r + 1) / 2;
    for (int i = 0; i < r + 1; ++i) {
      if (i > turn || (i == turn && r % 2 == 1))
        row.I(1);
      else
        row.B(1);
      if (i >= turn)
        row.I(0);
      else
        row.B(0);
    }
    // 7. W I0
    for (int i = 0; i < p - r - 1; ++i) row.W(), row.I(0);
    // 8. W
    for (int i = 0; i < r + 1; ++i) row.W();
  }
  return plan;
}

}  // namespace ppengine::schedules::generators
