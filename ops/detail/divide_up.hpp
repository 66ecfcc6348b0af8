// Division that rounds up: how many parts of a size there are.
#pragma once

#include <cstdint>

namespace ppengine::ops {

constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace ppengine::ops
