// Windows of a convolution as rows of a product: [in_channels * window, pixels], without ever being written down. A picture is copied once
// with its padding and, where windows step by more than one column, with the columns of each phase side by side; then what a window's
// element sees of neighbouring pixels is contiguous, at an offset that depends on the element alone.
#pragma once

#include <cstdint>
#include <vector>

#include <ppengine/ops/convolution.hpp>

namespace ppengine::ops::cpu {

class Windows {
 public:
  // One or two spatial dimensions, one group.
  explicit Windows(const ConvolutionSpec& spec);

  std::int64_t samples, channels, outs;
  std::int64_t pixels;                // of an output picture
  std::int64_t window;                // elements of a channel's window
  std::int64_t elements;              // of all channels: rows of the product
  std::vector<std::int64_t> offsets;  // by element, from a pixel's place

  bool in_place() const { return in_place_; }  // pictures are read where they lie
  std::int64_t padded_floats() const { return in_place_ ? 0 : samples * channels * plane_; }
  // The place of a pixel in padded memory (or in the pictures themselves), and how many pixels behind it lie behind that.
  std::int64_t place(std::int64_t sample, std::int64_t pixel) const {
    return sample * channels * plane_ + pixel / columns_ * stride_[0] * row_ + pixel % columns_;
  }
  std::int64_t run(std::int64_t pixel) const { return columns_ - pixel % columns_; }
  std::int64_t plane() const { return plane_; }  // floats of a padded picture
  std::int64_t picture() const { return size_[0] * size_[1]; }

  // One channel of one sample, to padded memory and back.
  void pad(const float* picture, float* padded) const;
  void unpad(const float* padded, float* picture) const;

 private:
  template <class Body>
  void for_rows(const Body& body) const;
  std::int64_t size_[2], stride_[2], padding_[2], dilation_[2], kernel_[2];
  std::int64_t columns_;         // of an output picture
  std::int64_t height_, phase_;  // padded rows; columns of one phase
  std::int64_t row_, plane_;     // floats of a padded row and picture
  bool in_place_;
};

}  // namespace ppengine::ops::cpu
