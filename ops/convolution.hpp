// Convolution over 1 to 3 spatial dimensions, dense [batch, channels, ...] in memory: forward and the two halves of its gradient.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops {

// weight: [out_channels, in_channels / groups, kernel...].
struct ConvolutionSpec {
  std::int64_t batch = 0, in_channels = 0, out_channels = 0, groups = 1;
  std::vector<std::int64_t> src, dst, kernel, stride, padding, dilation;  // by spatial dimension; dilation 1: dense
  bool bias = false;
};

class Convolution {
 public:
  // Null where no implementation here serves the device: generated kernels do (engine/tensor/plain_convolution.hpp).
  static std::unique_ptr<Convolution> make(Device& device, const ConvolutionSpec& spec);
  static std::vector<Considered> consider(const Device& device, const ConvolutionSpec& spec);
  static std::span<const Implementation<Convolution, ConvolutionSpec>> implementations();  // all, in the order of trying
  virtual ~Convolution() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual void forward(Stream& stream, const void* src, const void* weight, const void* bias, void* dst, void* workspace) = 0;
  virtual void backward_input(Stream& stream, const void* diff_dst, const void* weight, void* diff_src, void* workspace) = 0;
  // diff_bias may be null.
  virtual void backward_weight(Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias, bool accumulate,
                               void* workspace) = 0;
};

}  // namespace ppengine::ops
