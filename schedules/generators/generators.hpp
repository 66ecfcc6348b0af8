// The built-in generators. Each fills an empty plan whose numbers and placement have been checked.
#pragma once

#include <ppengine/schedules/registry.hpp>

namespace ppengine::schedules::generators {

Plan gpipe(const PlanRequest& request);
Plan one_forward_one_backward(const PlanRequest& request);
Plan looped_bfs(const PlanRequest& request);
Plan interleaved_1f1b(const PlanRequest& request);
Plan interleaved_zero_bubble(const PlanRequest& request);
Plan zbv_zero_bubble(const PlanRequest& request);
Plan dual_pipe_v(const PlanRequest& request);
Plan v_half(const PlanRequest& request);
Plan v_min(const PlanRequest& request);
Plan automatic(const PlanRequest& request);
Plan forward_only(const PlanRequest& request);

// Appends actions to one rank's row.
class Row {
 public:
  explicit Row(std::vector<Action>& actions) : actions_(actions) {}
  void reserve(long cells) { actions_.reserve(static_cast<std::size_t>(cells)); }
  void forward(int stage, int microbatch) { add(stage, ActionType::forward, microbatch); }
  void backward(int stage, int microbatch) { add(stage, ActionType::backward, microbatch); }
  void backward_input(int stage, int microbatch) { add(stage, ActionType::backward_input, microbatch); }
  void backward_weight(int stage, int microbatch) { add(stage, ActionType::backward_weight, microbatch); }
  void overlap(int forward_stage, int forward_microbatch, int backward_stage, int backward_microbatch) {
    add(forward_stage, ActionType::forward, forward_microbatch);
    actions_.back().joined = true;
    add(backward_stage, ActionType::backward, backward_microbatch);
  }
  void idle(int cells = 1) {
    if (cells > 0) actions_.insert(actions_.end(), static_cast<std::size_t>(cells), Action{});
  }
  void add(int stage, ActionType type, int microbatch) { actions_.push_back(make_action(stage, type, microbatch)); }

 private:
  std::vector<Action>& actions_;
};

}  // namespace ppengine::schedules::generators
