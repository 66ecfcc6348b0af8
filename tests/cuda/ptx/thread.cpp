// One thread of a work-group: control flow, registers and calls.
#include "thread.hpp"

#include <fmt/core.h>

namespace ppengine::ptx {

// A value that nobody wrote: what a register holds at first, and what a shuffle brings from a lane that is not there.
constexpr std::uint64_t poison = 0x7fc0'dead'7fc0'dead;

Thread::Thread(Group& group, const Function& entry, std::uint32_t index, const std::vector<std::uint64_t>& arguments)
    : group_(group), index_(index), local_("its own memory", local_window, 0) {
  enter(entry);
  for (std::size_t i = 0; i < arguments.size(); ++i) local_.copy_in(entry.parameters[i].offset, &arguments[i], entry.parameters[i].bytes);
}

void Thread::enter(const Function& function) {
  const std::size_t registers = registers_.size();
  const std::size_t memory = frames_.empty() ? 0 : (frame().memory + frame().function->frame_bytes + 15) / 16 * 16;
  registers_.resize(registers + function.registers, poison);
  local_.grow(memory + function.frame_bytes);
  local_.forget(memory, function.frame_bytes);
  frames_.push_back({&function, 0, registers, memory});
}

void Thread::leave() {
  const Frame done = frame();
  frames_.pop_back();
  registers_.resize(done.registers);
  if (frames_.empty()) {
    state_ = State::done;
    return;
  }
  const Instruction& caller = frame().function->code[frame().at - 1];
  if (caller.result >= 0) {
    const std::uint64_t value =
        local_.load(local_window + done.memory + static_cast<std::uint32_t>(done.function->result), done.function->result_bytes);
    local_.copy_in(frame().memory + static_cast<std::uint32_t>(caller.result), &value, done.function->result_bytes);
  }
}

void Thread::call(const Instruction& instruction) {
  const std::size_t before = frame().memory;
  const Function& callee = *instruction.callee;
  if (instruction.arguments.size() != callee.parameters.size()) throw Fault("calls " + callee.name + " with another number of arguments");
  enter(callee);
  for (std::size_t i = 0; i < callee.parameters.size(); ++i) {
    const Slot to = callee.parameters[i];
    if (to.bytes > 8) throw Fault("structs as arguments of calls are not known");
    const std::uint64_t value = local_.load(local_window + before + instruction.arguments[i], to.bytes);
    local_.copy_in(frame().memory + to.offset, &value, to.bytes);
  }
}

std::uint64_t Thread::special(Special which) const {
  const Size3 at = position();
  switch (which) {
    case Special::tid_x:
      return at.x;
    case Special::tid_y:
      return at.y;
    case Special::tid_z:
      return at.z;
    case Special::ntid_x:
      return group_.size.x;
    case Special::ntid_y:
      return group_.size.y;
    case Special::ntid_z:
      return group_.size.z;
    case Special::ctaid_x:
      return group_.index.x;
    case Special::ctaid_y:
      return group_.index.y;
    case Special::ctaid_z:
      return group_.index.z;
    case Special::nctaid_x:
      return group_.groups.x;
    case Special::nctaid_y:
      return group_.groups.y;
    case Special::nctaid_z:
      return group_.groups.z;
    case Special::laneid:
      return lane();
  }
  return poison;
}

Size3 Thread::position() const {
  return {index_ % group_.size.x, index_ / group_.size.x % group_.size.y, index_ / group_.size.x / group_.size.y};
}

std::uint32_t Thread::line() const {
  const std::uint32_t at = frame().at;
  return frame().function->code[at > 0 ? at - 1 : 0].line;
}

std::uint64_t Thread::value(const Operand& operand) const {
  switch (operand.kind) {
    case Operand::Kind::reg:
      return registers_[frame().registers + operand.index];
    case Operand::Kind::immediate:
      return operand.value;
    case Operand::Kind::special:
      return special(static_cast<Special>(operand.index));
    case Operand::Kind::frame:
      return local_window + frame().memory + operand.index;
    case Operand::Kind::none:
      return 0;
  }
  return poison;
}

void Thread::pass_barrier() {
  ++barriers_;
  state_ = State::running;
}
void Thread::pass_warp_barrier() {
  ++warp_barriers_;
  state_ = State::running;
}
void Thread::finish_shuffle(std::uint64_t result) {
  set(waiting_->to[0], result & 0xffffffffu);
  state_ = State::running;
}

std::uint64_t Thread::run(std::uint64_t most) {
  std::uint64_t count = 0;
  for (; count < most && state_ == State::running; ++count) {
    Frame& now = frame();
    if (now.at >= now.function->code.size()) throw Fault("runs past the end of " + now.function->name);
    const Instruction& instruction = now.function->code[now.at++];
    if (instruction.guard >= 0) {
      const bool set_there = (registers_[now.registers + static_cast<std::uint32_t>(instruction.guard)] & 1) != 0;
      if (set_there == instruction.guard_negated) continue;
    }
    carry_out(instruction);
  }
  return count;
}

void Thread::carry_out(const Instruction& instruction) {
  switch (instruction.action) {
    case Action::compute:
      set(instruction.to[0], instruction.compute(value(instruction.from[0]), value(instruction.from[1]), value(instruction.from[2])));
      break;
    case Action::load:
      load(instruction);
      break;
    case Action::store:
      store(instruction);
      break;
    case Action::jump:
      frame().at = instruction.target;
      break;
    case Action::jump_table: {
      const std::uint64_t index = value(instruction.from[0]) & 0xffffffffu;
      if (index >= instruction.targets.size()) throw Fault(fmt::format("jumps to entry {} of {}", index, instruction.targets.size()));
      frame().at = instruction.targets[index];
      break;
    }
    case Action::call:
      call(instruction);
      break;
    case Action::leave:
      leave();
      break;
    case Action::barrier:
      state_ = State::at_barrier;
      break;
    case Action::warp_barrier:
      state_ = State::at_warp_barrier;
      break;
    case Action::copy:
      begin_copy(instruction);
      break;
    case Action::commit_copies:
      copies_.emplace_back();
      break;
    case Action::finish_copies:
      finish_copies(instruction.target);
      break;
    case Action::load_matrices:
    case Action::multiply:
    case Action::shuffle:
      waiting_ = &instruction;
      state_ = State::at_shuffle;
      break;
    case Action::unpack: {
      const std::uint64_t all = value(instruction.from[0]);
      const unsigned width = instruction.bytes * 8u;
      for (unsigned i = 0; i < instruction.count; ++i) set(instruction.to[i], (all >> (width * i)) & ((std::uint64_t(1) << width) - 1));
      break;
    }
  }
}

}  // namespace ppengine::ptx
