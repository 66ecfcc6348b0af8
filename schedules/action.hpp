// One action of a plan: eight bytes, and its text both ways ("2F0", "3RECV_B7", "1UNSHARD", "(0F7;7B3)OVERLAP_F_B").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <ppengine/base/ids.hpp>

namespace ppengine::schedules {

// What is kept per stage is indexed by its id; a plan itself does arithmetic with the stages' numbers.
using StageId = Id<struct StageTag>;

enum class ActionType : std::uint8_t {
  idle,             // an empty cell of a compute_only file
  forward,          // F
  backward,         // B: the full backward
  backward_input,   // I: the gradient of the stage's input only
  backward_weight,  // W: the gradients of the weights only
  send_forward,     // SEND_F: activation to stage + 1
  recv_forward,     // RECV_F: activation from stage - 1
  send_backward,    // SEND_B: gradient to stage - 1
  recv_backward,    // RECV_B: gradient from stage + 1
  unshard,          // gather a stage's sharded parameters
  reshard,          // free them again
  reduce_grad,      // data-parallel reduction and gradient scaling
};
constexpr int action_types = 12;

// OVERLAP_F_B is no type of its own: its two parts stand one after the other, and the first has `joined` set. So the
// parts of a plan are plain actions wherever order does not matter, and an overlap costs two actions and no pointer.
struct Action {
  ActionType type = ActionType::idle;
  bool joined = false;  // runs at the same time as the next action of the list
  std::uint16_t stage = 0;
  std::uint32_t microbatch = 0;  // 0 where the type has none

  friend bool operator==(const Action&, const Action&) = default;
};
static_assert(sizeof(Action) == 8);

constexpr int max_stages = 65535;
constexpr int max_microbatches = 1 << 24;

constexpr bool is_compute(ActionType t) { return t >= ActionType::forward && t <= ActionType::backward_weight; }
constexpr bool is_message(ActionType t) { return t >= ActionType::send_forward && t <= ActionType::recv_backward; }
constexpr bool is_send(ActionType t) { return t == ActionType::send_forward || t == ActionType::send_backward; }
constexpr bool is_recv(ActionType t) { return t == ActionType::recv_forward || t == ActionType::recv_backward; }
// B or I: makes the gradient that the stage before waits for.
constexpr bool gives_input_gradient(ActionType t) { return t == ActionType::backward || t == ActionType::backward_input; }
// B or W: the last use of a microbatch's activations, and what REDUCE_GRAD counts.
constexpr bool gives_weight_gradient(ActionType t) { return t == ActionType::backward || t == ActionType::backward_weight; }
constexpr bool has_microbatch(ActionType t) { return is_compute(t) || is_message(t); }

constexpr Action make_action(int stage, ActionType type, int microbatch = 0) {
  return {type, false, static_cast<std::uint16_t>(stage), static_cast<std::uint32_t>(microbatch)};
}

// The stage at the other end of a send or receive.
constexpr int peer_stage(const Action& a) {
  return a.type == ActionType::send_forward || a.type == ActionType::recv_backward ? a.stage + 1 : a.stage - 1;
}

// "F", "SEND_B", ...; empty for idle.
std::string_view type_name(ActionType type);
std::string to_text(const Action& action);
// The text of the cell that starts at `first`: one action, or both parts of an overlap. Appends to `out`.
void append_cell(std::string& out, const Action* first);
std::string cell_text(const Action* first);

// One cell of a file: nothing (idle), one action, or the two parts of an overlap with `parts[0].joined` set.
struct Cell {
  Action parts[2];
  int count = 0;
};
// Accepts exactly the grammar above. Returns an empty reason if `text` is a cell, otherwise what is wrong with it.
std::string parse_cell(std::string_view text, Cell& cell);
// The same for one action that is not an overlap; throws ConfigError.
Action parse_action(std::string_view text);

}  // namespace ppengine::schedules
