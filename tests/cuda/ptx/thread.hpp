// One thread of a work-group: registers, calls, its own memory, and where it stands.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "module.hpp"
#include "shared_memory.hpp"

namespace ppengine::ptx {

struct Size3 {
  std::uint32_t x = 1, y = 1, z = 1;
  std::uint32_t count() const { return x * y * z; }
};

// What the threads of a work-group have in common.
struct Group {
  Size3 groups, size, index;
  GlobalMemory& global;
  SharedMemory shared;
};

class Thread {
 public:
  // at_shuffle: or at another instruction that a warp carries out together.
  enum class State : std::uint8_t { running, at_barrier, at_warp_barrier, at_shuffle, done };

  // arguments: as bytes, one after the other as the entry's parameters.
  Thread(Group& group, const Function& entry, std::uint32_t index, const std::vector<std::uint64_t>& arguments);

  // Carries out instructions until it waits, is done, or has carried out so many; returns how many. Throws Fault.
  std::uint64_t run(std::uint64_t most);

  State state() const { return state_; }
  std::uint32_t warp() const { return index_ / 32; }
  std::uint32_t lane() const { return index_ % 32; }
  Size3 position() const;
  std::uint32_t line() const;  // of the instruction that it stands at or waits in
  void pass_barrier();         // from a barrier of the group
  void pass_warp_barrier();    // of its warp
  const Instruction& waiting() const { return *waiting_; }
  std::uint64_t value(const Operand& operand) const;
  void finish_shuffle(std::uint64_t result);
  // For load_matrices: the row that this lane points at, and what the lane gets. For multiply: what it gets.
  std::uint64_t row_address() const;
  std::array<std::uint16_t, 8> read_row();
  void finish_together(const std::array<std::uint32_t, 4>& results);

 private:
  struct Frame {
    const Function* function;
    std::uint32_t at = 0;
    std::size_t registers, memory;  // where its own begin
  };
  void enter(const Function& function);
  void set(const Operand& to, std::uint64_t value) { registers_[frame().registers + to.index] = value; }
  Frame& frame() { return frames_.back(); }
  const Frame& frame() const { return frames_.back(); }
  void carry_out(const Instruction& instruction);
  std::uint64_t address_of(const Instruction& instruction, const Operand& base) const;
  void load(const Instruction& instruction);
  void store(const Instruction& instruction);
  void call(const Instruction& instruction);
  void leave();
  std::uint64_t load_from(std::uint64_t address, unsigned bytes);
  void store_to(std::uint64_t address, unsigned bytes, std::uint64_t value);
  std::uint64_t special(Special which) const;
  Accessor accessor() const;
  void begin_copy(const Instruction& instruction);
  void finish_copies(std::size_t later);

  Group& group_;
  std::uint32_t index_;
  State state_ = State::running;
  std::uint32_t barriers_ = 0, warp_barriers_ = 0;
  const Instruction* waiting_ = nullptr;
  std::vector<Frame> frames_;
  std::vector<std::uint64_t> registers_;
  Region local_;
  // cp.async: what was read for an address of shared memory, and how many of the last are not committed yet.
  struct Copy {
    std::uint64_t to;
    std::array<std::uint8_t, 16> bytes;
  };
  std::vector<std::vector<Copy>> copies_{1};  // by commit, the last open
};

}  // namespace ppengine::ptx
