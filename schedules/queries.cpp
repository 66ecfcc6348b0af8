// Peaks of what is alive at the same time, by walking a rank's actions once.
#include <ppengine/schedules/queries.hpp>

#include <algorithm>

namespace ppengine::schedules {
namespace {

struct Counter {
  int now = 0;
  int peak = 0;
  void add(int n) { peak = std::max(peak, now += n); }
};

struct StageCounters {
  Counter live, pending, activations, gradients, outputs;
};

}  // namespace

std::vector<StagePeaks> stage_peaks(const Plan& plan, int rank) {
  const bool inference = is_inference(plan);
  const auto stages = local_stages(plan, rank);
  std::vector<StageCounters> counters(static_cast<std::size_t>(plan.stages));
  auto here = [&](int stage) { return stage >= 0 && stage < plan.stages && plan.rank_of(stage) == rank; };
  // A message that no RECV announces: counted at its use in a compute_only plan, at its making on the same rank.
  auto unannounced = [&](int neighbour) { return !plan.lowered() && neighbour >= 0 && neighbour < plan.stages && !here(neighbour); };

  for (const Action& a : plan.of(rank)) {
    StageCounters& c = counters[a.stage];
    switch (a.type) {
      case ActionType::recv_forward:
        c.activations.add(1);
        break;
      case ActionType::recv_backward:
        c.gradients.add(1);
        break;
      case ActionType::forward:
        if (unannounced(a.stage - 1)) c.activations.add(1);
        c.live.add(1);
        c.outputs.add(1);
        if (a.stage > 0) c.activations.add(-1);
        if (here(a.stage + 1)) counters[static_cast<std::size_t>(a.stage) + 1].activations.add(1);
        if (inference) c.live.add(-1), c.outputs.add(-1);
        break;
      case ActionType::backward:
      case ActionType::backward_input:
        if (unannounced(a.stage + 1)) c.gradients.add(1);
        c.outputs.add(-1);
        if (a.stage + 1 < plan.stages) c.gradients.add(-1);
        if (here(a.stage - 1)) counters[static_cast<std::size_t>(a.stage) - 1].gradients.add(1);
        if (a.type == ActionType::backward)
          c.live.add(-1);
        else
          c.pending.add(1);
        break;
      case ActionType::backward_weight:
        c.pending.add(-1);
        c.live.add(-1);
        break;
      default:
        break;
    }
  }

  std::vector<StagePeaks> peaks;
  for (const int s : stages) {
    const StageCounters& c = counters[static_cast<std::size_t>(s)];
    peaks.push_back({s, c.live.peak, c.pending.peak, c.activations.peak, c.gradients.peak, c.outputs.peak});
  }
  return peaks;
}

int peak_live_microbatches(const Plan& plan, int rank) {
  const bool inference = is_inference(plan);
  Counter live;
  for (const Action& a : plan.of(rank)) {
    if (a.type == ActionType::forward) {
      live.add(1);
      if (inference) live.add(-1);
    } else if (gives_weight_gradient(a.type)) {
      live.add(-1);
    }
  }
  return live.peak;
}

}  // namespace ppengine::schedules
