// Loops over a channel's elements.
#pragma once

#include <cstdint>

namespace ppengine::ops::cpu {

struct ChannelLoops {
  float (*sum)(const float* x, std::int64_t count);
  float (*squares)(const float* x, float mean, std::int64_t count);  // Σ (x - mean)²
  // sum += Σ g, dot += Σ g · (x - mean)
  void (*products)(const float* g, const float* x, float mean, std::int64_t count, float& sum, float& dot);
  void (*scale)(const float* x, float a, float b, float* y, std::int64_t count);                             // y = a·x + b
  void (*combine)(const float* g, const float* x, float a, float b, float c, float* y, std::int64_t count);  // y = a·g + b·x + c
};
const ChannelLoops* channel_loops();  // null as in loops.hpp

}  // namespace ppengine::ops::cpu
