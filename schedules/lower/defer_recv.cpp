// Deferred receives: a receive that is posted early keeps a buffer, and on some transports the link, busy. Two rules:
// PyTorch's, and one that no transport can turn into a deadlock.
#include <algorithm>
#include <deque>
#include <map>

#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/simulate.hpp>

namespace ppengine::schedules {
namespace {

// The RECV that `a` needs: its type is idle if the input is made on the same rank, or there is none.
Action recv_for(const Plan& plan, const Action& a) {
  const bool forward = a.type == ActionType::forward;
  if (forward ? a.stage == 0 : !gives_input_gradient(a.type) || a.stage + 1 == plan.stages) return {};
  if (plan.rank_of(forward ? a.stage - 1 : a.stage + 1) == plan.rank_of(a.stage)) return {};
  return make_action(a.stage, forward ? ActionType::recv_forward : ActionType::recv_backward, static_cast<int>(a.microbatch));
}

bool is_second_part(const std::vector<Action>& row, std::size_t i) { return i > 0 && row[i - 1].joined; }

[[noreturn]] void no_consumer(int rank, const Action& recv) {
  throw PlanError("rank " + std::to_string(rank) + ": no action uses what " + to_text(recv) + " receives; remove it");
}

}  // namespace

Plan defer_recv_as_pytorch(Plan plan) {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const std::vector<Action> row = std::move(plan.of(rank));
    std::vector<Action> out;
    out.reserve(row.size());
    // What has not been put into the new order yet, by peer, in the old order. Uses come in that order too, nearly
    // always.
    std::map<int, std::deque<Action>> pending;
    auto peer_of = [&](const Action& message) { return plan.rank_of(peer_stage(message)); };
    auto receive = [&](const Action& recv) {
      if (recv.type == ActionType::idle) return;
      auto& from_peer = pending[peer_of(recv)];
      const auto found = std::find(from_peer.begin(), from_peer.end(), recv);
      if (found == from_peer.end()) return;
      out.push_back(*found);
      from_peer.erase(found);
    };
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Action& a = row[i];
      if (is_recv(a.type)) {
        pending[peer_of(a)].push_back(a);
        continue;
      }
      // 1. Towards a higher rank: receive before sending.
      if (is_send(a.type) && rank < peer_of(a)) {
        auto& from_peer = pending[peer_of(a)];
        out.insert(out.end(), from_peer.begin(), from_peer.end());
        from_peer.clear();
      }
      // 2. What the cell needs, in the order of its parts.
      if (!is_second_part(row, i)) receive(recv_for(plan, a));
      if (a.joined) receive(recv_for(plan, row[i + 1]));
      // 3. The action itself.
      out.push_back(a);
    }
    for (const auto& [peer, left] : pending)
      if (!left.empty()) no_consumer(rank, left.front());
    plan.of(rank) = std::move(out);
  }
  return plan;
}

Plan defer_recv_safely(Plan plan) {
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const std::vector<Action> row = std::move(plan.of(rank));
    std::vector<Action> out;
    out.reserve(row.size());
    std::deque<Action> pending;
    // Messages never overtake each other: with one of them go all before it.
    auto receive_up_to = [&](const Action& recv) {
      if (recv.type == ActionType::idle) return;
      const auto found = std::find(pending.begin(), pending.end(), recv);
      if (found == pending.end()) return;
      out.insert(out.end(), pending.begin(), found + 1);
      pending.erase(pending.begin(), found + 1);
    };
    for (std::size_t i = 0; i < row.size(); ++i) {
      const Action& a = row[i];
      if (is_recv(a.type)) {
        pending.push_back(a);
        continue;
      }
      if (is_send(a.type)) {
        out.insert(out.end(), pending.begin(), pending.end());
        pending.clear();
      }
      if (!is_second_part(row, i)) receive_up_to(recv_for(plan, a));
      if (a.joined) receive_up_to(recv_for(plan, row[i + 1]));
      out.push_back(a);
    }
    if (!pending.empty()) no_consumer(rank, pending.front());
    plan.of(rank) = std::move(out);
  }
  return plan;
}

Plan defer_recv(Plan plan) {
  Plan as_pytorch = defer_recv_as_pytorch(plan);
  try {
    simulate(as_pytorch, {}, {.send = SendMode::rendezvous_unbatched});
    return as_pytorch;
  } catch (const PlanError&) {  // the cycle
    return defer_recv_safely(std::move(plan));
  }
}

}  // namespace ppengine::schedules
