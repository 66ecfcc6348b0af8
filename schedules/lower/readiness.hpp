// Which inputs are there, for each pair of stage and microbatch: two bits, set by messages or by a neighbour on the
// same rank.
#pragma once

#include <vector>

#include <ppengine/schedules/plan.hpp>

namespace ppengine::schedules {

class Readiness {
 public:
  explicit Readiness(const Plan& plan)
      : stages_(plan.stages),
        microbatches_(static_cast<std::size_t>(plan.microbatches)),
        activation_(static_cast<std::size_t>(plan.stages) * microbatches_),
        gradient_(activation_.size()) {}

  // The input that the action needs from another stage is there.
  bool ready(const Action& a) const {
    if (a.type == ActionType::forward) return a.stage == 0 || activation_[at(a.stage, a)];
    if (gives_input_gradient(a.type)) return a.stage == stages_ - 1 || gradient_[at(a.stage, a)];
    return true;
  }
  // The cell's inputs are all there.
  bool cell_ready(const Action* first) const { return ready(*first) && (!first->joined || ready(first[1])); }

  // The action has run (or its message has arrived): its neighbour's input is there. Returns whether it has a
  // neighbour.
  bool deliver(const Action& a) {
    if (a.type == ActionType::forward && a.stage + 1 < stages_) return activation_[at(a.stage + 1, a)] = true;
    if (gives_input_gradient(a.type) && a.stage > 0) return gradient_[at(a.stage - 1, a)] = true;
    return false;
  }

 private:
  std::size_t at(int stage, const Action& a) const { return static_cast<std::size_t>(stage) * microbatches_ + a.microbatch; }

  int stages_;
  std::size_t microbatches_;
  std::vector<bool> activation_, gradient_;
};

}  // namespace ppengine::schedules
