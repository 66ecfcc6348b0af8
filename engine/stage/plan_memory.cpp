// Counting blocks along a rank's plan.
#include <ppengine/engine/stage/plan_memory.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {
namespace {

// Things that come and go, and how many there were at most.
class Peak {
 public:
  void add(std::uint32_t microbatch) {
    alive_.insert(microbatch);
    peak_ = std::max(peak_, static_cast<int>(alive_.size()));
  }
  void remove(std::uint32_t microbatch) { alive_.erase(microbatch); }
  int peak() const { return peak_; }

 private:
  std::set<std::uint32_t> alive_;
  int peak_ = 0;
};

}  // namespace

BlockCount count_blocks(const schedules::Plan& plan, StageId of) {
  const int stage = of.number();
  using schedules::ActionType;
  const bool inference = schedules::is_inference(plan);
  const int rank = plan.rank_of(stage);
  const bool ours_before = stage > 0 && plan.rank_of(stage - 1) == rank;
  const bool ours_after = stage + 1 < plan.stages && plan.rank_of(stage + 1) == rank;
  const bool sends_forward = stage + 1 < plan.stages && !ours_after, sends_backward = stage > 0 && !ours_before;
  Peak activations, gradients;
  std::set<std::uint32_t> computed, sent;  // weight gradients that are in, input gradients that are out
  auto finish = [&](std::uint32_t microbatch) {
    if (computed.contains(microbatch) && (!sends_backward || sent.contains(microbatch))) gradients.remove(microbatch);
  };
  for (const schedules::Action& action : plan.of(rank)) {
    const int at = action.stage;
    const std::uint32_t microbatch = action.microbatch;
    if (ours_before && at == stage - 1 && action.type == ActionType::forward) activations.add(microbatch);
    if (ours_after && at == stage + 1 && schedules::gives_input_gradient(action.type)) gradients.add(microbatch);
    if (at != stage) continue;
    if (action.type == ActionType::recv_forward || action.type == ActionType::forward) activations.add(microbatch);
    if (action.type == ActionType::recv_backward || schedules::gives_input_gradient(action.type)) gradients.add(microbatch);
    if (inference && action.type == (sends_forward ? ActionType::send_forward : ActionType::forward)) activations.remove(microbatch);
    if (action.type == ActionType::send_backward) sent.insert(microbatch), finish(microbatch);
    if (schedules::gives_weight_gradient(action.type)) {
      activations.remove(microbatch);
      computed.insert(microbatch), finish(microbatch);
    }
  }
  return {activations.peak(), gradients.peak()};
}

ActiveCount count_active(const schedules::Plan& plan, int rank) {
  using schedules::ActionType;
  Peak gathered, gradients;
  std::set<int> here;
  for (const schedules::Action& action : plan.of(rank)) {
    if (action.type == ActionType::unshard) gathered.add(action.stage), here.insert(action.stage);
    if (action.type == ActionType::reshard) gathered.remove(action.stage), here.erase(action.stage);
    if (schedules::is_compute(action.type) && !here.contains(action.stage))
      throw ConfigError(fmt::format(
          "--shard: the plan of rank {} uses stage {} without UNSHARD: give a plan without communication, which is lowered here", rank,
          int{action.stage}));
    if (schedules::gives_weight_gradient(action.type)) gradients.add(action.stage);
    if (action.type == ActionType::reduce_grad) gradients.remove(action.stage);
  }
  return {gathered.peak(), gradients.peak()};
}

}  // namespace ppengine::engine
