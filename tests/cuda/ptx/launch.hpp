// Runs a kernel over work-groups in a random order, its threads interleaved at random.
#pragma once

#include <cstdint>
#include <vector>

#include "memory.hpp"
#include "module.hpp"
#include "thread.hpp"

namespace ppengine::ptx {

struct Launch {
  Size3 groups, size;
  std::vector<std::uint64_t> arguments;  // raw bits, in the order of the parameters
  std::uint64_t seed = 0;                // of the order in which groups and threads run
  std::uint64_t most_instructions = 200'000'000;
};

// Returns the number of instructions. Throws Fault: kernel, work-group, thread, instruction, and what is wrong.
std::uint64_t run(const Module& module, const Function& kernel, GlobalMemory& memory, const Launch& launch);

}  // namespace ppengine::ptx
