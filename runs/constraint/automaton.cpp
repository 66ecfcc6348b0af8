// States of a grammar.
#include <ppengine/runs/constraint/automaton.hpp>

#include <algorithm>

namespace ppengine::runs::constraint {
namespace {

constexpr std::int32_t none = -1;
constexpr std::int32_t deepest = 4096;  // rules in each other: a rule that begins with itself must come to an end

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar, std::int32_t rule) : grammar_(std::move(grammar)) {
  state_of({{grammar_->first_of(rule), none}});
}

std::int32_t Automaton::push(std::int32_t back, std::int32_t below) {
  const auto [found, is_new] = frame_ids_.try_emplace({back, below}, static_cast<std::int32_t>(frames_.size()));
  if (is_new) {
    const Frame* under = below == none ? nullptr : &frames_[static_cast<std::size_t>(below)];
    const std::int64_t distance = grammar_->distance(back) + (under ? under->distance : 0);
    frames_.push_back({back, below, under ? under->depth + 1 : 0, std::min(distance, Grammar::never)});
  }
  return found->second;
}

void Automaton::follow(Thread thread, std::set<Thread>& seen, Known& into) {
  std::vector<Thread> left{thread};
  while (!left.empty()) {
    const auto [at, stack] = left.back();
    left.pop_back();
    if (!seen.insert({at, stack}).second) continue;
    const std::int64_t outside = stack == none ? 0 : frames_[static_cast<std::size_t>(stack)].distance;
    const std::int64_t distance = grammar_->distance(at) + outside;
    if (distance >= Grammar::never) continue;  // leads nowhere
    const Grammar::Instruction& instruction = grammar_->at(at);
    switch (instruction.kind) {
      case Grammar::Kind::bytes:
        into.waits.push_back({at, stack});
        into.distance = std::min(into.distance, distance);
        break;
      case Grammar::Kind::choice:
        for (const std::int32_t option : instruction.options) left.push_back({option, stack});
        break;
      case Grammar::Kind::call: {
        const std::int32_t frame = push(instruction.next, stack);
        if (frames_[static_cast<std::size_t>(frame)].depth < deepest) left.push_back({grammar_->first_of(instruction.which), frame});
        break;
      }
      case Grammar::Kind::end:
        if (stack == none) {
          into.accepts = true;
          into.distance = 0;
        } else {
          left.push_back({frames_[static_cast<std::size_t>(stack)].back, frames_[static_cast<std::size_t>(stack)].below});
        }
    }
  }
}

Automaton::State Automaton::state_of(const std::vector<Thread>& from) {
  auto known = std::make_unique<Known>();
  std::set<Thread> seen;
  for (const Thread& thread : from) follow(thread, seen, *known);
  if (known->waits.empty() && !known->accepts) return dead;
  std::ranges::sort(known->waits);
  const auto [found, is_new] = state_ids_.try_emplace({known->waits, known->accepts}, static_cast<State>(states_.size()));
  if (is_new) {
    known->next.fill(unknown);
    states_.push_back(std::move(known));
  }
  return found->second;
}

Automaton::State Automaton::next(State state, unsigned char byte) {
  if (state == dead) return dead;
  State& to = states_[static_cast<std::size_t>(state)]->next[byte];
  if (to == unknown) {
    std::vector<Thread> after;
    for (const auto& [instruction, stack] : at(state).waits)
      if (const auto& each = grammar_->at(instruction); grammar_->set(each.which).test(byte)) after.push_back({each.next, stack});
    to = state_of(after);  // states_ holds pointers: `to` stays where it is
  }
  return to;
}

}  // namespace ppengine::runs::constraint
