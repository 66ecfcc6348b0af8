// Running a plan without time. Each rank runs as far as it can; one that waits is woken by what it waits for, so every
// action is looked at once or twice.
#include <ppengine/schedules/check/order_check.hpp>

#include <ppengine/schedules/check/deadlock.hpp>
#include <ppengine/schedules/check/runnable_ranks.hpp>
#include <ppengine/schedules/lower/readiness.hpp>

namespace ppengine::schedules {
namespace {

class OrderCheck {
 public:
  explicit OrderCheck(const Plan& plan) : plan_(plan), readiness_(plan), next_(plan.actions.size()), runnable_(plan.ranks) {}

  void run() {
    runnable_.run([this](int rank) { advance(rank); });
    std::vector<Stuck> stuck;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const std::size_t next = next_[rank];
      if (next < plan_.of(rank).size()) stuck.push_back({rank, next, missing(&plan_.of(rank)[next])});
    }
    if (!stuck.empty()) report_deadlock(plan_, stuck);
  }

 private:
  // In a lowered plan a stage's input is there once the message was sent; the receive stands before the use.
  bool ready(const Action* cell) const {
    if (is_recv(cell->type)) return readiness_.ready(consumer(*cell));
    return readiness_.cell_ready(cell);
  }
  static Action consumer(const Action& recv) {
    return make_action(recv.stage, recv.type == ActionType::recv_forward ? ActionType::forward : ActionType::backward,
                       static_cast<int>(recv.microbatch));
  }
  static Action producer(const Action& send) {
    return make_action(send.stage, send.type == ActionType::send_forward ? ActionType::forward : ActionType::backward,
                       static_cast<int>(send.microbatch));
  }
  Action missing(const Action* cell) const {
    if (is_recv(cell->type)) return counterpart(*cell);
    return input_of(cell->joined && readiness_.ready(*cell) ? cell[1] : *cell);
  }

  void advance(int rank) {
    const auto& row = plan_.of(rank);
    std::size_t& next = next_[rank];
    while (next < row.size() && ready(&row[next])) {
      const int parts = row[next].joined ? 2 : 1;
      for (int i = 0; i < parts; ++i, ++next) deliver(row[next], rank);
    }
  }

  void deliver(const Action& a, int rank) {
    const bool send = is_send(a.type);
    if (!send && !is_compute(a.type)) return;
    const Action made = send ? producer(a) : a;
    const int neighbour = made.type == ActionType::forward ? made.stage + 1 : made.stage - 1;
    if (made.type == ActionType::backward_weight || neighbour < 0 || neighbour >= plan_.stages) return;
    const int to = plan_.rank_of(neighbour);
    if (plan_.lowered() && !send && to != rank) return;  // leaves with its SEND
    readiness_.deliver(made);
    if (to != rank) runnable_.wake(to);
  }

  const Plan& plan_;
  Readiness readiness_;
  PerRank<std::size_t> next_;
  RunnableRanks runnable_;
};

}  // namespace

void check_order_across_ranks(const Plan& plan) { OrderCheck(plan).run(); }

}  // namespace ppengine::schedules
