// Windows of a convolution as rows of a product: places and offsets, padding.
#include <ppengine/ops/cpu/windows.hpp>

#include <algorithm>

#include <ppengine/ops/detail/divide_up.hpp>

namespace ppengine::ops::cpu {

Windows::Windows(const ConvolutionSpec& spec) : samples(spec.batch), channels(spec.in_channels), outs(spec.out_channels) {
  const std::size_t missing = 2 - spec.src.size();  // one dimension is a picture of one row
  const auto two = [&](const std::vector<std::int64_t>& from, std::int64_t (&to)[2], std::int64_t otherwise) {
    for (std::size_t i = 0; i < 2; ++i) to[i] = i < missing ? otherwise : from[i - missing];
  };
  std::int64_t out[2];
  two(spec.src, size_, 1), two(spec.dst, out, 1), two(spec.kernel, kernel_, 1);
  two(spec.stride, stride_, 1), two(spec.padding, padding_, 0), two(spec.dilation, dilation_, 1);
  height_ = (out[0] - 1) * stride_[0] + (kernel_[0] - 1) * dilation_[0] + 1;
  const std::int64_t width = (out[1] - 1) * stride_[1] + (kernel_[1] - 1) * dilation_[1] + 1;
  in_place_ = padding_[0] == 0 && padding_[1] == 0 && stride_[1] == 1 && height_ <= size_[0] && width <= size_[1];
  phase_ = in_place_ ? size_[1] : divide_up(width, stride_[1]);
  row_ = phase_ * stride_[1];
  plane_ = in_place_ ? size_[0] * size_[1] : height_ * row_;
  // Rows that follow each other are one long row.
  columns_ = in_place_ && stride_[0] == 1 && out[1] == size_[1] ? out[0] * out[1] : out[1];
  pixels = out[0] * out[1];
  window = kernel_[0] * kernel_[1];
  elements = channels * window;
  for (std::int64_t c = 0; c < channels; ++c)
    for (std::int64_t y = 0; y < kernel_[0]; ++y)
      for (std::int64_t x = 0; x < kernel_[1]; ++x) {
        const std::int64_t column = x * dilation_[1];
        offsets.push_back(c * plane_ + y * dilation_[0] * row_ + column % stride_[1] * phase_ + column / stride_[1]);
      }
}

// body(row of the picture, where it lies when padded, phase, first column of the phase that is in the picture, one behind the last)
template <class Body>
void Windows::for_rows(const Body& body) const {
  for (std::int64_t h = 0; h < size_[0] && h + padding_[0] < height_; ++h)
    for (std::int64_t r = 0; r < stride_[1]; ++r) {
      // Column i of the phase is column i * stride + r - padding of the picture.
      const std::int64_t first = std::max<std::int64_t>(0, divide_up(padding_[1] - r, stride_[1]));
      const std::int64_t last = std::min(phase_, divide_up(size_[1] + padding_[1] - r, stride_[1]));
      if (first < last) body(h, (h + padding_[0]) * row_ + r * phase_, r, first, last);
    }
}

void Windows::pad(const float* picture, float* padded) const {
  float* done = padded;  // all before it is written
  for_rows([&](std::int64_t h, std::int64_t at, std::int64_t r, std::int64_t first, std::int64_t last) {
    const float* const from = picture + h * size_[1] + r - padding_[1];
    std::fill(done, padded + at + first, 0.0f);
    if (stride_[1] == 1)
      std::copy(from + first, from + last, padded + at + first);
    else
      for (std::int64_t i = first; i < last; ++i) padded[at + i] = from[i * stride_[1]];
    done = padded + at + last;
  });
  std::fill(done, padded + plane_, 0.0f);
}

void Windows::unpad(const float* padded, float* picture) const {
  std::fill_n(picture, size_[0] * size_[1], 0.0f);  // what no window sees
  for_rows([&](std::int64_t h, std::int64_t at, std::int64_t r, std::int64_t first, std::int64_t last) {
    float* const to = picture + h * size_[1] + r - padding_[1];
    if (stride_[1] == 1)
      std::copy(padded + at + first, padded + at + last, to + first);
    else
      for (std::int64_t i = first; i < last; ++i) to[i * stride_[1]] = padded[at + i];
  });
}

}  // namespace ppengine::ops::cpu
