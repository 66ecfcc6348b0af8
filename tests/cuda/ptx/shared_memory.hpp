// Shared memory of a work-group with a detector of races: two threads that touch a byte, one of them writing, with no barrier between.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"

namespace ppengine::ptx {

// Who accesses, and how many barriers it has passed: those of the work-group, and those of its warp since.
struct Accessor {
  std::int32_t thread, warp;
  std::uint32_t barriers, warp_barriers;
};

class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes);
  std::uint64_t load(std::uint64_t address, unsigned bytes, const Accessor& by);
  void store(std::uint64_t address, unsigned bytes, std::uint64_t value, const Accessor& by);

 private:
  struct Last {
    Accessor writer{-1, -1, 0, 0}, reader{-1, -1, 0, 0};
    bool other_warps = false;  // read it too since the last barrier of the work-group
  };
  Region region_;
  std::vector<Last> last_;
};

}  // namespace ppengine::ptx
