// Loads and stores of a thread: global, shared, its own memory and parameters, told apart by the address.
#include <fmt/core.h>

#include "bits.hpp"
#include "thread.hpp"

namespace ppengine::ptx {

Accessor Thread::accessor() const {
  return {static_cast<std::int32_t>(index_), static_cast<std::int32_t>(warp()), barriers_, warp_barriers_};
}

std::uint64_t Thread::load_from(std::uint64_t address, unsigned bytes) {
  if (address >= shared_window) return group_.shared.load(address, bytes, accessor());
  if (address >= local_window) return local_.load(address, bytes);
  return group_.global.region(address).load(address, bytes);
}

void Thread::store_to(std::uint64_t address, unsigned bytes, std::uint64_t value) {
  if (address >= shared_window) return group_.shared.store(address, bytes, value, accessor());
  if (address >= local_window) return local_.store(address, bytes, value);
  group_.global.region(address).store(address, bytes, value);
}

namespace {

std::uint64_t extended(std::uint64_t value, unsigned bytes) {
  switch (bytes) {
    case 1:
      return to_bits<std::int64_t>(from_bits<std::int8_t>(value));
    case 2:
      return to_bits<std::int64_t>(from_bits<std::int16_t>(value));
    case 4:
      return to_bits<std::int64_t>(from_bits<std::int32_t>(value));
    default:
      return value;
  }
}

void check_vector(std::uint64_t address, unsigned bytes) {
  if (address % bytes != 0) throw Fault(fmt::format("a vector of {} bytes at {:#x}, misaligned", bytes, address));
}

}  // namespace

std::uint64_t Thread::address_of(const Instruction& instruction, const Operand& base) const {
  const std::uint64_t address = value(base) + static_cast<std::uint64_t>(instruction.offset);
  return instruction.shared ? in_shared_window(address) : address;
}

void Thread::load(const Instruction& instruction) {
  const std::uint64_t address = address_of(instruction, instruction.from[0]);
  if (instruction.count > 1) check_vector(address, instruction.count * instruction.bytes);
  for (unsigned i = 0; i < instruction.count; ++i) {
    const std::uint64_t loaded = load_from(address + i * instruction.bytes, instruction.bytes);
    set(instruction.to[i], instruction.is_signed ? extended(loaded, instruction.bytes) : loaded);
  }
}

void Thread::store(const Instruction& instruction) {
  const std::uint64_t address = address_of(instruction, instruction.to[0]);
  if (instruction.count > 1) check_vector(address, instruction.count * instruction.bytes);
  for (unsigned i = 0; i < instruction.count; ++i) store_to(address + i * instruction.bytes, instruction.bytes, value(instruction.from[i]));
}

std::uint64_t Thread::row_address() const {
  return in_shared_window(value(waiting_->from[0]) + static_cast<std::uint64_t>(waiting_->offset));
}

std::array<std::uint16_t, 8> Thread::read_row() {
  const std::uint64_t address = row_address();
  if (address % 16 != 0) throw Fault(fmt::format("a row of a matrix at {:#x}, misaligned", address));
  std::array<std::uint16_t, 8> row;
  for (std::size_t i = 0; i < row.size(); ++i) row[i] = static_cast<std::uint16_t>(group_.shared.load(address + 2 * i, 2, accessor()));
  return row;
}

void Thread::finish_together(const std::array<std::uint32_t, 4>& results) {
  for (std::size_t i = 0; i < results.size(); ++i)
    set(waiting_->action == Action::multiply ? waiting_->matrices[i] : waiting_->to[i], results[i]);
  state_ = State::running;
}

}  // namespace ppengine::ptx
