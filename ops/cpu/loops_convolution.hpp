// Loops of convolutions: rows of a picture to and from the panels of a product.
#pragma once

#include <cstdint>

namespace ppengine::ops::cpu {

struct ConvolutionLoops {
  // to[r][width] = what lies at from + offsets[r]; rows of `to` begin `row` floats apart.
  void (*take_rows)(const float* from, const std::int64_t* offsets, std::int64_t rows, std::int64_t width, float* to, std::int64_t row);
  // What lies at into + offsets[r] += from[r][width], one row after the other: they may overlap.
  void (*add_rows)(const float* from, std::int64_t row, const std::int64_t* offsets, std::int64_t rows, std::int64_t width, float* into);
  float (*sum)(const float* from, std::int64_t count);
};
const ConvolutionLoops* convolution_loops();  // null as in loops.hpp

}  // namespace ppengine::ops::cpu
