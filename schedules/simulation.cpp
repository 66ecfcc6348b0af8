// What can be read off a finished simulation: shares of idle time, memory over time, the critical path.
#include <algorithm>

#include <ppengine/schedules/check/deadlock.hpp>
#include <ppengine/schedules/simulate.hpp>

namespace ppengine::schedules {
namespace {

double idle(double busy, double available) { return available > 0 ? std::max(0.0, (available - busy) / available) : 0; }

double total_busy(const std::vector<RankTimes>& ranks) {
  double busy = 0;
  for (const auto& r : ranks) busy += r.busy;
  return busy;
}

// Where each F and each B or I stands in its rank's row.
class Producers {
 public:
  explicit Producers(const Plan& plan) : plan_(plan) {
    const auto pairs = static_cast<std::size_t>(plan.stages) * static_cast<std::size_t>(plan.microbatches);
    forward_.resize(pairs);
    backward_.resize(pairs);
    for (const auto& row : plan.actions)
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::size_t first = i > 0 && row[i - 1].joined ? i - 1 : i;
        if (row[i].type == ActionType::forward) forward_[pair(row[i])] = static_cast<std::uint32_t>(first);
        if (gives_input_gradient(row[i].type)) backward_[pair(row[i])] = static_cast<std::uint32_t>(first);
      }
  }
  // The cell that makes the input of `a`; false if it needs none.
  bool find(const Action& a, PathStep& step) const {
    const bool forward = a.type == ActionType::forward;
    if (forward ? a.stage == 0 : !gives_input_gradient(a.type) || a.stage == plan_.stages - 1) return false;
    const Action input = input_of(a);
    step = {plan_.rank_of(input.stage), forward ? forward_[pair(input)] : backward_[pair(input)]};
    return true;
  }

 private:
  std::size_t pair(const Action& a) const {
    return static_cast<std::size_t>(a.stage) * static_cast<std::size_t>(plan_.microbatches) + a.microbatch;
  }
  const Plan& plan_;
  std::vector<std::uint32_t> forward_, backward_;
};

}  // namespace

double end_of(const Plan& plan, const Simulation& simulation, const Costs& costs, int rank, std::size_t index) {
  const Action& a = plan.of(rank)[index];
  return simulation.start[static_cast<std::size_t>(rank)][index] + (is_message(a.type) ? costs.message() : costs.cell(&a));
}

double Simulation::idle_share() const { return idle(total_busy(ranks), makespan * static_cast<double>(ranks.size())); }
double Simulation::idle_share(int rank) const { return idle(ranks[static_cast<std::size_t>(rank)].busy, makespan); }
double Simulation::idle_share_of_span() const { return idle(total_busy(ranks), longest_span * static_cast<double>(ranks.size())); }
double Simulation::idle_share_of_span(int rank) const { return idle(ranks[static_cast<std::size_t>(rank)].busy, longest_span); }

std::vector<MemoryPoint> memory_curve(const Plan& plan, const Simulation& simulation, const Costs& costs, int rank) {
  const auto& row = plan.of(rank);
  const bool inference = is_inference(plan);
  std::vector<MemoryPoint> curve{{0, 0, 0}};
  auto change = [&](double time, int sign, const Action& a) {
    MemoryPoint point = curve.back();
    point.time = time;
    point.microbatches += sign;
    point.bytes += sign * costs.of(a.stage).activation_bytes;
    // What ends and what starts at the same moment are one step.
    if (curve.back().time == time && curve.size() > 1)
      curve.back() = point;
    else
      curve.push_back(point);
  };
  for (std::size_t i = 0; i < row.size(); ++i) {
    const std::size_t cell = i > 0 && row[i - 1].joined ? i - 1 : i;
    const double end = end_of(plan, simulation, costs, rank, cell);
    if (row[i].type == ActionType::forward) {
      change(simulation.start[static_cast<std::size_t>(rank)][i], +1, row[i]);
      if (inference) change(end, -1, row[i]);
    } else if (gives_weight_gradient(row[i].type)) {
      change(end, -1, row[i]);
    }
  }
  return curve;
}

std::vector<PathStep> critical_path(const Plan& plan, const Simulation& simulation, const Costs& costs) {
  auto end = [&](const PathStep& s) { return end_of(plan, simulation, costs, s.rank, s.index); };
  // 1. The cell that ends last.
  PathStep last;
  double latest = -1;
  for (int rank = 0; rank < plan.ranks; ++rank)
    for (std::size_t i = 0; i < plan.of(rank).size(); i += plan.of(rank)[i].joined ? 2 : 1)
      if (is_compute(plan.of(rank)[i].type) && end({rank, i}) > latest) latest = end({rank, i}), last = {rank, i};
  if (latest < 0) return {};

  // 2. Back in time: of the cells that this one waited for, the one that came last.
  const Producers producers(plan);
  std::vector<PathStep> path{last};
  for (;;) {
    const PathStep here = path.back();
    const auto& row = plan.of(here.rank);
    PathStep before;
    double when = -1;
    for (std::size_t i = here.index; i-- > 0;) {
      if (!is_compute(row[i].type)) continue;
      before = {here.rank, i > 0 && row[i - 1].joined ? i - 1 : i};
      when = end(before);
      break;
    }
    for (std::size_t part = here.index; part <= here.index + (row[here.index].joined ? 1 : 0); ++part) {
      PathStep producer;
      if (!producers.find(row[part], producer)) continue;
      const double there = end(producer) + (producer.rank == here.rank ? 0 : costs.message());
      if (there > when) when = there, before = producer;
    }
    if (when < 0) break;
    path.push_back(before);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

}  // namespace ppengine::schedules
