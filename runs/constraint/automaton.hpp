// What a grammar allows after what was read so far. States are made when they are first reached, and kept.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include <ppengine/runs/constraint/grammar.hpp>

namespace ppengine::runs::constraint {

class Automaton {
 public:
  using State = std::int32_t;
  static constexpr State dead = -1;

  Automaton(std::shared_ptr<const Grammar> grammar, std::int32_t rule);

  State start() const { return 0; }
  State next(State state, unsigned char byte);
  bool accepts(State state) const { return at(state).accepts; }  // it may end here
  bool can_go_on(State state) const { return !at(state).waits.empty(); }
  std::int64_t distance(State state) const { return at(state).distance; }  // the fewest bytes to an end
  std::size_t states() const { return states_.size(); }

 private:
  // A place in a rule, with the places to which rules return.
  using Thread = std::pair<std::int32_t, std::int32_t>;  // instruction, stack
  struct Frame {
    std::int32_t back = 0, below = 0;  // the instruction to return to; the frame below, -1: none
    std::int32_t depth = 0;
    std::int64_t distance = 0;  // from here to the end of the outermost rule
  };
  struct Known {
    std::vector<Thread> waits;  // for bytes
    bool accepts = false;
    std::int64_t distance = Grammar::never;
    std::array<State, 256> next{};
  };
  static constexpr State unknown = -2;

  const Known& at(State state) const { return *states_[static_cast<std::size_t>(state)]; }
  State state_of(const std::vector<Thread>& from);
  std::int32_t push(std::int32_t back, std::int32_t below);
  void follow(Thread thread, std::set<Thread>& seen, Known& into);

  std::shared_ptr<const Grammar> grammar_;
  std::vector<Frame> frames_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> frame_ids_;
  std::vector<std::unique_ptr<Known>> states_;
  std::map<std::pair<std::vector<Thread>, bool>, State> state_ids_;
};

}  // namespace ppengine::runs::constraint
