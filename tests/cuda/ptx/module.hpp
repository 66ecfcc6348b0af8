// PTX as the interpreter holds it: functions of instructions whose operands are resolved.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "arithmetic.hpp"

namespace ppengine::ptx {

// Where addresses of each space begin: they are generic addresses everywhere, so that cvta is a move.
constexpr std::uint64_t shared_window = 0x7f00'0000'0000, local_window = 0x7e00'0000'0000;

enum class Special : std::uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid
};

struct Operand {
  enum class Kind : std::uint8_t { none, reg, immediate, special, frame };
  Kind kind = Kind::none;
  std::uint32_t index = 0;  // of a register, a special register, or an offset in the function's frame
  std::uint64_t value = 0;  // of an immediate
};

enum class Action : std::uint8_t {
  compute,
  load,
  store,
  jump,
  jump_table,
  call,
  leave,
  barrier,
  warp_barrier,
  shuffle,
  unpack,
  copy,  // cp.async: to[0], from[0], bytes, and how many of them to read in from[1]
  commit_copies,
  finish_copies,  // but those of the last `target` commits
  load_matrices,
  multiply
};
enum class Shuffle : std::uint8_t { up, down, idx, bfly };

struct Function;

struct Instruction {
  Action action = Action::compute;
  Compute compute = nullptr;
  Shuffle shuffle = Shuffle::up;
  std::uint8_t bytes = 0, count = 1;  // of loads and stores: of each element, elements
  bool is_signed = false;             // a load extends the sign
  bool parameters = false;            // a load or store of the function's parameters
  bool shared = false;                // a load or store that names shared memory
  bool guard_negated = false;
  std::int32_t guard = -1;  // a predicate register, or -1
  Operand to[4], from[4];
  std::int64_t offset = 0;  // of the address from[0] (load), to[0] (store)
  std::uint32_t target = 0;
  std::vector<std::uint32_t> targets;  // of a jump table
  std::vector<Operand> matrices;       // of multiply: d (4), a (4), b (2), c (4)
  bool transposed = false;             // of load_matrices
  const Function* callee = nullptr;
  std::vector<std::uint32_t> arguments;  // offsets in the caller's frame
  std::int32_t result = -1;              // offset in the caller's frame, or -1
  std::uint32_t line = 0;                // in the text
};

struct Slot {
  std::uint32_t offset, bytes;
};

struct Function {
  std::string name;
  bool entry = false;
  std::vector<Slot> parameters;
  std::int32_t result = -1;  // offset of the return value in the frame
  std::uint32_t result_bytes = 0;
  std::uint32_t registers = 0, frame_bytes = 0;
  std::vector<Instruction> code;
};

struct Module {
  std::map<std::string, std::unique_ptr<Function>, std::less<>> functions;
  std::map<std::string, Slot, std::less<>> shared;
  std::uint32_t shared_bytes = 0;
  std::vector<std::string> lines;  // of the text, for messages

  // Throws std::runtime_error for what it does not know, with line and text.
  static Module parse(std::string_view text);
  // The entry "__sycl_kernel_NAME"; throws where there is none.
  const Function& kernel(std::string_view name) const;
};

}  // namespace ppengine::ptx
