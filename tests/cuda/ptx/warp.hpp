// What the threads of a warp do together: shuffles and barriers of the warp.
#pragma once

#include <span>

#include "thread.hpp"

namespace ppengine::ptx {

// Lets the threads of one warp go on where all that are not done wait for the same; says whether any did.
bool settle_warp(std::span<Thread> warp);

// The lane that a shuffle reads, or the own lane where that lies outside (PTX ISA, shfl.sync).
std::uint32_t source_lane(Shuffle kind, std::uint32_t lane, std::uint32_t b, std::uint32_t c);

}  // namespace ppengine::ptx
