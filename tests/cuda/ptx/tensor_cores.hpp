// What the lanes of a warp do together on tensor cores: all 32 wait in the same instruction.
#pragma once

#include <span>

#include "thread.hpp"

namespace ppengine::ptx {

void load_matrices(std::span<Thread> warp);
void multiply_matrices(std::span<Thread> warp);

}  // namespace ppengine::ptx
