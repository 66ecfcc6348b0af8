// Shared memory of a work-group with a detector of races.
#include "shared_memory.hpp"

#include <fmt/core.h>

namespace ppengine::ptx {
namespace {

// No barrier that both passed lies between.
bool at_once(const Accessor& now, const Accessor& before) {
  if (before.thread < 0 || before.thread == now.thread || before.barriers != now.barriers) return false;
  return before.warp != now.warp || before.warp_barriers == now.warp_barriers;
}

[[noreturn]] void race(std::uint64_t address, const char* now, const Accessor& before, const char* did) {
  throw Fault(fmt::format("race: {} byte {} of shared memory, which thread {} {} with no barrier between", now, address - shared_window,
                          before.thread, did));
}

}  // namespace

SharedMemory::SharedMemory(std::size_t bytes) : region_("shared memory", shared_window, bytes), last_(bytes) {}

std::uint64_t SharedMemory::load(std::uint64_t address, unsigned bytes, const Accessor& by) {
  const std::uint64_t value = region_.load(address, bytes);
  for (std::size_t i = address - shared_window; i < address - shared_window + bytes; ++i) {
    Last& last = last_[i];
    if (at_once(by, last.writer)) race(address, "reads", last.writer, "wrote");
    const bool fresh = last.reader.thread < 0 || last.reader.barriers != by.barriers;
    last.other_warps = !fresh && (last.other_warps || last.reader.warp != by.warp);
    last.reader = by;
  }
  return value;
}

void SharedMemory::store(std::uint64_t address, unsigned bytes, std::uint64_t value, const Accessor& by) {
  region_.store(address, bytes, value);
  take_write(address, bytes, by);
}

void SharedMemory::begin_write(std::uint64_t address, unsigned bytes, const Accessor& by) {
  region_.forget(region_.check(address, bytes, bytes, "writes"), bytes);
  take_write(address, bytes, by);
}

void SharedMemory::take_write(std::uint64_t address, unsigned bytes, const Accessor& by) {
  for (std::size_t i = address - shared_window; i < address - shared_window + bytes; ++i) {
    Last& last = last_[i];
    if (at_once(by, last.writer)) race(address, "writes", last.writer, "wrote");
    if (at_once(by, last.reader)) race(address, "writes", last.reader, "read");
    // Readers before the last one: those of other warps cannot have met a barrier of this warp; those of the own warp can have.
    if (last.reader.barriers == by.barriers && last.other_warps) race(address, "writes", last.reader, "and one of another warp read");
    last.writer = by;
  }
}

}  // namespace ppengine::ptx
