// Loops of convolutions: rows of a picture to and from the panels of a product.
#pragma once

#include <cstdint>

namespace ppengine::ops::cpu {

struct ConvolutionLoops {
  // to[r][width] = what lies at from + offsets[r]; rows of `to` begin `row` floats apart.
  void (*take_rows)(const float* from, const int64_t* offsets, int64_t rows, int64_t width, float* to, int64_t row);
  // What lies at into + offsets[r] += from[r][width], one row after the other: they may overlap.
  void (*add_rows)(const float* from, int64_t row, const int64_t* offsets, int64_t rows, int64_t width, float* into);
  float (*sum)(const float* from, int64_t count);
};
const ConvolutionLoops* convolution_loops();  // null as in loops.hpp

}  // namespace ppengine::ops::cpu
