// Copies from global to shared memory that run beside the arithmetic (cp.async). Here they arrive as late as the rules allow: when their
// work-item waits for them. Until then, the bytes count as never written.
#include <fmt/core.h>

#include <algorithm>

#include "thread.hpp"

namespace ppengine::ptx {

void Thread::begin_copy(const Instruction& instruction) {
  Copy copy{in_shared_window(value(instruction.to[0])), {}};
  const std::uint64_t from = value(instruction.from[0]) + static_cast<std::uint64_t>(instruction.offset);
  const std::uint64_t read = value(instruction.from[1]) & 0xffffffffu;
  if (copy.to % 16 != 0 || from % 16 != 0) throw Fault(fmt::format("copies 16 bytes from {:#x} to {:#x}, misaligned", from, copy.to));
  if (read > 16) throw Fault(fmt::format("reads {} bytes for a copy of 16", read));
  for (std::uint64_t i = 0; i < read; ++i) copy.bytes[i] = static_cast<std::uint8_t>(load_from(from + i, 1));
  group_.shared.begin_write(copy.to, 16, accessor());
  copies_.back().push_back(copy);
}

void Thread::finish_copies(std::size_t later) {
  const std::size_t done = copies_.size() - 1 - std::min(later, copies_.size() - 1);
  for (std::size_t i = 0; i < done; ++i)
    for (const Copy& copy : copies_[i])
      for (std::uint64_t byte = 0; byte < copy.bytes.size(); ++byte) group_.shared.store(copy.to + byte, 1, copy.bytes[byte], accessor());
  copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace ppengine::ptx
