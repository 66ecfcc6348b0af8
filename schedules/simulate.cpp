// Simulation in time. Each rank runs as far as it can; what it waits for wakes it, so the work is linear in the
// actions. The times do not depend on the order in which ranks are advanced.
#include <ppengine/schedules/simulate.hpp>

#include <algorithm>
#include <limits>

#include <ppengine/base/error.hpp>
#include <ppengine/schedules/check/deadlock.hpp>
#include <ppengine/schedules/check/runnable_ranks.hpp>
#include <ppengine/schedules/queries.hpp>

namespace ppengine::schedules {
namespace {

constexpr double unknown = -1;

class Simulator {
 public:
  Simulator(const Plan& plan, const Costs& costs, SendMode mode)
      : plan_(plan),
        costs_(costs),
        mode_(mode),
        message_(costs.message()),
        next_(plan.actions.size()),
        clock_(plan.actions.size()),
        pending_(plan.actions.size()),
        batch_done_(plan.actions.size()),
        runnable_(plan.ranks) {
    const auto pairs = static_cast<std::size_t>(plan.stages) * static_cast<std::size_t>(plan.microbatches);
    activation_.assign(pairs, unknown);
    if (!is_inference(plan)) gradient_.assign(pairs, unknown);
    result_.start.resize(plan.actions.size());
    for (std::size_t r = 0; r < plan.actions.size(); ++r) result_.start[r].assign(plan.actions[r].size(), 0.0);
  }

  Simulation run() {
    runnable_.run([this](int rank) { advance(rank); });
    report_stuck_ranks();
    summarize();
    return std::move(result_);
  }

 private:
  bool rendezvous() const { return mode_ == SendMode::rendezvous || mode_ == SendMode::rendezvous_unbatched; }
  std::size_t pair(int stage, const Action& a) const {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(plan_.microbatches) + a.microbatch;
  }
  // When the input of `a` from another stage is there; unknown if it is not yet.
  double input_time(const Action& a) const {
    if (a.type == ActionType::forward || a.type == ActionType::recv_forward) return a.stage == 0 ? 0 : activation_[pair(a.stage, a)];
    if (gives_input_gradient(a.type) || a.type == ActionType::recv_backward)
      return a.stage == plan_.stages - 1 ? 0 : gradient_[pair(a.stage, a)];
    return 0;
  }
  // The input slot of the stage that gets what `a` makes or sends; null if nobody does.
  double* target(const Action& a) {
    if (a.type == ActionType::forward || a.type == ActionType::send_forward)
      return a.stage + 1 < plan_.stages ? &activation_[pair(a.stage + 1, a)] : nullptr;
    if (gives_input_gradient(a.type) || a.type == ActionType::send_backward)
      return a.stage > 0 ? &gradient_[pair(a.stage - 1, a)] : nullptr;
    return nullptr;
  }
  double& message_slot(const Action& sent) {
    double* const slot = target(sent);
    PPENGINE_ASSERT(slot);
    return *slot;
  }
  int target_rank(const Action& a) const {
    const bool forward = a.type == ActionType::forward || a.type == ActionType::send_forward;
    return plan_.rank_of(forward ? a.stage + 1 : a.stage - 1);
  }

  void advance(int rank) {
    const auto& row = plan_.of(rank);
    const std::size_t& next = next_[rank];
    while (next < row.size()) {
      const Action& a = row[next];
      const bool went_on = !is_message(a.type) ? compute(rank, &a)
                           : rendezvous()      ? meet(rank)
                           : is_send(a.type)   ? send(rank, a)
                                               : receive(rank, a);
      if (!went_on) return;
    }
  }

  // A cell starts when the rank is free and its inputs are there.
  bool compute(int rank, const Action* cell) {
    const auto r = static_cast<std::size_t>(rank);
    const int parts = cell->joined ? 2 : 1;
    double start = clock_[rank];
    for (int i = 0; i < parts; ++i) {
      const double input = input_time(cell[i]);
      if (input == unknown) return false;
      start = std::max(start, input);
    }
    const double duration = costs_.cell(cell);
    clock_[rank] = cell->type == ActionType::idle ? clock_[rank] : start + duration;
    for (int i = 0; i < parts; ++i) {
      result_.start[r][next_[rank]++] = start;
      deliver(cell[i], rank, clock_[rank]);
    }
    return true;
  }

  // To a stage on the same rank at once. To another rank with the SEND, or after the message's time where there are no
  // SENDs.
  void deliver(const Action& a, int rank, double time) {
    double* slot = target(a);
    if (!slot) return;
    const int to = target_rank(a);
    if (to == rank) {
      *slot = time;
    } else if (!plan_.lowered()) {
      *slot = time + message_;
      runnable_.wake(to);
    }
  }

  bool send(int rank, const Action& a) {
    const auto r = static_cast<std::size_t>(rank);
    result_.start[r][next_[rank]++] = clock_[rank];
    message_slot(a) = clock_[rank] + message_;
    if (mode_ == SendMode::blocking) clock_[rank] += message_;
    runnable_.wake(target_rank(a));
    return true;
  }

  // An overlapped receive takes no time of the rank: the action that uses the message waits for it.
  bool receive(int rank, const Action& a) {
    const auto r = static_cast<std::size_t>(rank);
    const double arrival = input_time(a);
    if (arrival == unknown) return false;
    result_.start[r][next_[rank]++] = arrival - message_;
    if (mode_ == SendMode::blocking) clock_[rank] = std::max(clock_[rank], arrival);
    return true;
  }

  std::size_t batch_end(int rank, std::size_t begin) const {
    const auto& row = plan_.of(rank);
    std::size_t end = begin + 1;
    if (mode_ == SendMode::rendezvous)
      while (end < row.size() && is_message(row[end].type)) ++end;
    return end;
  }

  // Posts the batch of messages at the rank's position. A message starts when both sides have posted it; the rank goes
  // on when all of its batch are through. Until then the slot holds the time of the side that came first.
  bool meet(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const auto& row = plan_.of(rank);
    if (pending_[rank] > 0) return false;
    const std::size_t begin = next_[rank], end = batch_end(rank, begin);
    double done = clock_[rank];
    for (std::size_t i = begin; i < end; ++i) {
      const Action other = counterpart(row[i]);
      double& slot = message_slot(is_send(row[i].type) ? row[i] : other);
      if (slot == unknown) {
        slot = clock_[rank];
        ++pending_[rank];
        continue;
      }
      const double start = std::max(slot, clock_[rank]);
      slot = start + message_;
      result_.start[r][i] = start;
      done = std::max(done, slot);
      complete(plan_.rank_of(other.stage), other, start);
    }
    batch_done_[rank] = pending_[rank] > 0 ? done : 0.0;
    if (pending_[rank] > 0) return false;
    next_[rank] = end;
    clock_[rank] = done;
    return true;
  }

  // The other side's post of `a` has met its counterpart.
  void complete(int rank, const Action& a, double start) {
    const auto r = static_cast<std::size_t>(rank);
    const auto& row = plan_.of(rank);
    std::size_t i = next_[rank];
    while (!(row[i] == a)) ++i;
    result_.start[r][i] = start;
    batch_done_[rank] = std::max(batch_done_[rank], start + message_);
    if (--pending_[rank] > 0) return;
    next_[rank] = batch_end(rank, next_[rank]);
    clock_[rank] = std::max(clock_[rank], batch_done_[rank]);
    runnable_.wake(rank);
  }

  void report_stuck_ranks() const {
    std::vector<Stuck> stuck;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const auto& row = plan_.of(rank);
      std::size_t at = next_[rank];
      if (at == row.size()) continue;
      const Action* cell = &row[at];
      if (is_message(cell->type)) {
        // In a batch, the first message that has not met its other side.
        while (rendezvous() && at + 1 < batch_end(rank, next_[rank]) && met(rank, at)) ++at;
        stuck.push_back({rank, at, counterpart(row[at])});
      } else {
        stuck.push_back({rank, at, input_of(cell->joined && input_time(*cell) != unknown ? cell[1] : *cell)});
      }
    }
    if (!stuck.empty()) report_deadlock(plan_, stuck);
  }
  // The other side is past the message.
  bool met(int rank, std::size_t at) const {
    const Action other = counterpart(plan_.of(rank)[at]);
    const int peer = plan_.rank_of(other.stage);
    const auto& row = plan_.of(peer);
    const auto reached = static_cast<std::ptrdiff_t>(batch_end(peer, next_[peer]));
    const bool at_message = next_[peer] < row.size() && is_message(row[next_[peer]].type);
    const auto end = row.begin() + (at_message ? reached : static_cast<std::ptrdiff_t>(next_[peer]));
    return std::find(row.begin(), end, other) != end;
  }

  void summarize() {
    result_.ranks.resize(plan_.actions.size());
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const auto& row = plan_.of(rank);
      RankTimes& times = result_.ranks[static_cast<std::size_t>(rank)];
      const auto& start = result_.start[static_cast<std::size_t>(rank)];
      times.first_start = std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < row.size(); i += row[i].joined ? 2 : 1) {
        if (is_message(row[i].type) || row[i].type == ActionType::idle) continue;
        const double duration = costs_.cell(&row[i]);
        times.busy += duration;
        times.last_end = std::max(times.last_end, start[i] + duration);
        if (is_compute(row[i].type)) times.first_start = std::min(times.first_start, start[i]);
      }
      times.peak_live_microbatches = peak_live_microbatches(plan_, rank);
      times.peak_live_bytes = peak_bytes(row);
      result_.makespan = std::max({result_.makespan, times.last_end, rendezvous() ? clock_[rank] : 0.0});
      result_.longest_span = std::max(result_.longest_span, times.last_end - times.first_start);
    }
  }
  double peak_bytes(const std::vector<Action>& row) const {
    const bool inference = is_inference(plan_);
    double bytes = 0, peak = 0;
    for (const Action& a : row) {
      const double size = costs_.of(a.stage).activation_bytes;
      if (a.type == ActionType::forward) peak = std::max(peak, bytes + size);
      if (a.type == ActionType::forward && !inference) bytes += size;
      if (gives_weight_gradient(a.type)) bytes -= size;
    }
    return peak;
  }

  const Plan& plan_;
  const Costs& costs_;
  SendMode mode_;
  double message_;
  Simulation result_;
  PerRank<std::size_t> next_;
  PerRank<double> clock_;
  PerRank<int> pending_;                       // messages of the rank's batch that have not met the other side
  PerRank<double> batch_done_;                 // when those that have are through
  std::vector<double> activation_, gradient_;  // when a stage's input is there, by stage and microbatch
  RunnableRanks runnable_;
};

}  // namespace

Simulation simulate(const Plan& plan, const Costs& costs, const SimulateOptions& options) {
  check_costs(costs, plan.stages);
  if (options.send != SendMode::overlapped && !plan.lowered())
    throw ConfigError("blocking and rendezvous sends need a plan with communication: lower it first");
  return Simulator(plan, costs, options.send).run();
}

}  // namespace ppengine::schedules
