// Shared memory of a work-group with a detector of races: two threads that touch a byte, one of them writing, with no barrier between.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "module.hpp"

namespace ppengine::ptx {

// Who accesses, and how many barriers it has passed: those of the work-group, and those of its warp since.
struct Accessor {
  std::int32_t thread, warp;
  std::uint32_t barriers, warp_barriers;
};

// Instructions that name shared memory take addresses within it, too, which fit 32 bits.
constexpr std::uint64_t in_shared_window(std::uint64_t address) { return address < shared_window ? address + shared_window : address; }

class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes);
  std::uint64_t load(std::uint64_t address, unsigned bytes, const Accessor& by);
  void store(std::uint64_t address, unsigned bytes, std::uint64_t value, const Accessor& by);
  // Something will be written there later: until then it is as never written.
  void begin_write(std::uint64_t address, unsigned bytes, const Accessor& by);

 private:
  void take_write(std::uint64_t address, unsigned bytes, const Accessor& by);
  struct Last {
    Accessor writer{-1, -1, 0, 0}, reader{-1, -1, 0, 0};
    bool other_warps = false;  // read it too since the last barrier of the work-group
  };
  Region region_;
  std::vector<Last> last_;
};

}  // namespace ppengine::ptx
