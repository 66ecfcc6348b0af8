// send/recv: puts every message behind its producer and, at the same moment, at the end of the receiver's list so far.
//
// The order is that of going over the ranks again and again, each time one action of a rank if its input is there.
// Ranks that wait are not visited but woken, which gives the same order in time linear in the actions.
#include <fmt/format.h>

#include <bit>

#include <ppengine/schedules/lower.hpp>
#include <ppengine/schedules/lower/readiness.hpp>

namespace ppengine::schedules {
namespace {

// A set of ranks that hands out its smallest member.
class RankSet {
 public:
  explicit RankSet(int ranks) : words_(static_cast<std::size_t>(ranks) / 64 + 1) {}
  void insert(int rank) { words_[static_cast<std::size_t>(rank) / 64] |= std::uint64_t{1} << (rank % 64); }
  // The smallest rank from `from` on, which is removed; -1 if there is none.
  int take_from(int from) {
    auto w = static_cast<std::size_t>(from) / 64;
    if (w >= words_.size()) return -1;
    std::uint64_t word = words_[w] & (~std::uint64_t{0} << (from % 64));
    while (word == 0) {
      if (++w == words_.size()) return -1;
      word = words_[w];
    }
    const int rank = static_cast<int>(w) * 64 + std::countr_zero(word);
    words_[w] &= ~(std::uint64_t{1} << (rank % 64));
    return rank;
  }

 private:
  std::vector<std::uint64_t> words_;
};

class Lowering {
 public:
  explicit Lowering(Plan plan) : plan_(std::move(plan)), readiness_(plan_), now_(plan_.ranks), later_(plan_.ranks) {
    out_.resize(plan_.actions.size());
    next_.assign(plan_.actions.size(), 0);
    waiting_.assign(plan_.actions.size(), true);
    reserve_exactly();
  }

  Plan run() {
    for (int rank = 0; rank < plan_.ranks; ++rank) wake(rank, -1);
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = now_.take_from(0); rank >= 0; rank = now_.take_from(rank + 1)) {
        visit(rank);
        progress = true;
      }
      std::swap(now_, later_);
    }
    for (int rank = 0; rank < plan_.ranks; ++rank)
      if (next_[static_cast<std::size_t>(rank)] < plan_.of(rank).size()) report_stuck();
    plan_.actions = std::move(out_);
    plan_.format = PlanFormat::compute_comms;
    return std::move(plan_);
  }

 private:
  bool has_message(const Action& a, int& peer_of_message) const {
    if (a.type == ActionType::forward && a.stage + 1 < plan_.stages)
      peer_of_message = a.stage + 1;
    else if (gives_input_gradient(a.type) && a.stage > 0)
      peer_of_message = a.stage - 1;
    else
      return false;
    return plan_.rank_of(peer_of_message) != plan_.rank_of(a.stage);
  }

  // Idle cells are dropped, and growing lists would need twice the memory: count first.
  void reserve_exactly() {
    std::vector<std::size_t> size(plan_.actions.size(), 0);
    for (std::size_t rank = 0; rank < plan_.actions.size(); ++rank) {
      std::erase_if(plan_.actions[rank], [](const Action& a) { return a.type == ActionType::idle; });
      size[rank] += plan_.actions[rank].size();
      int peer = 0;
      for (const Action& a : plan_.actions[rank])
        if (has_message(a, peer)) ++size[rank], ++size[static_cast<std::size_t>(plan_.rank_of(peer))];
    }
    for (std::size_t rank = 0; rank < size.size(); ++rank) out_[rank].reserve(size[rank]);
  }

  // `rank` is not waiting any more if its next action is ready: it runs in this round if its turn is still to come.
  void wake(int rank, int current) {
    const auto r = static_cast<std::size_t>(rank);
    if (!waiting_[r] || next_[r] == plan_.actions[r].size() || !readiness_.cell_ready(&plan_.actions[r][next_[r]])) return;
    waiting_[r] = false;
    if (rank > current)
      now_.insert(rank);
    else
      later_.insert(rank);
  }

  void visit(int rank) {
    const auto r = static_cast<std::size_t>(rank);
    const Action* cell = &plan_.actions[r][next_[r]];
    const int parts = cell->joined ? 2 : 1;
    out_[r].insert(out_[r].end(), cell, cell + parts);
    next_[r] += static_cast<std::size_t>(parts);
    for (int i = 0; i < parts; ++i) {
      int peer = 0;
      if (has_message(cell[i], peer)) exchange(cell[i], peer, rank);
      readiness_.deliver(cell[i]);
      if (has_message(cell[i], peer)) wake(plan_.rank_of(peer), rank);
    }
    waiting_[r] = true;
    wake(rank, rank);
  }

  void exchange(const Action& a, int receiver, int rank) {
    const bool forward = a.type == ActionType::forward;
    const int microbatch = static_cast<int>(a.microbatch);
    out_[static_cast<std::size_t>(rank)].push_back(
        make_action(a.stage, forward ? ActionType::send_forward : ActionType::send_backward, microbatch));
    out_[static_cast<std::size_t>(plan_.rank_of(receiver))].push_back(
        make_action(receiver, forward ? ActionType::recv_forward : ActionType::recv_backward, microbatch));
  }

  [[noreturn]] void report_stuck() const {
    std::string text = "the plan gets stuck:";
    int shown = 0;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      const std::size_t next = next_[static_cast<std::size_t>(rank)];
      const auto& row = plan_.of(rank);
      if (next == row.size()) continue;
      if (++shown > 8) break;
      const Action& missing = readiness_.ready(row[next]) && row[next].joined ? row[next + 1] : row[next];
      const bool forward = missing.type == ActionType::forward;
      text +=
          fmt::format("{} rank {} at column {} has {} waiting for {}{}{}", shown > 1 ? ";" : "", rank, column_of(row, next),
                      cell_text(&row[next]), forward ? missing.stage - 1 : missing.stage + 1, forward ? "F" : "B or I", missing.microbatch);
    }
    throw PlanError(text);
  }

  Plan plan_;
  Readiness readiness_;
  std::vector<std::vector<Action>> out_;
  std::vector<std::size_t> next_;
  std::vector<bool> waiting_;
  RankSet now_, later_;
};

}  // namespace

Plan add_send_recv(Plan plan) { return Lowering(std::move(plan)).run(); }

}  // namespace ppengine::schedules
