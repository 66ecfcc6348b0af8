// Division that rounds up: how many parts of a size there are.
#pragma once

#include <cstdint>

namespace ppengine::ops {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace ppengine::ops
