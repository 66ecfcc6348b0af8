// Guesses of what a text goes on with: what followed the last time that its last tokens stood in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ppengine::runs {

// At most so many tokens; none where the last three stand nowhere else.
std::vector<std::int32_t> look_up(std::span<const std::int32_t> prompt, std::span<const std::int32_t> generated, std::int64_t most);

}  // namespace ppengine::runs
