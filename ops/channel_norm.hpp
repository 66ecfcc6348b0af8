// What batch norm does to [samples, channels, places], on CPUs: statistics of each channel, and the two maps that use them.
#pragma once

#include <memory>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops {

struct ChannelNormSpec {
  std::int64_t samples = 0, channels = 0, places = 0;
  float epsilon = 1e-5f;
};

class ChannelNorm {
 public:
  // Null where no implementation here serves the device: generated kernels do (engine/tensor/batch_norm.cpp).
  static std::unique_ptr<ChannelNorm> make(Device& device, const ChannelNormSpec& spec);
  virtual ~ChannelNorm() = default;
  virtual void mean(Stream& stream, const float* src, float* mean) = 0;
  virtual void variance(Stream& stream, const float* src, const float* mean, float* variance) = 0;
  // dst = (src - mean) · rstd · gamma + beta; gamma and beta may be null.
  virtual void forward(Stream& stream, const float* src, const float* mean, const float* variance, const float* gamma, const float* beta,
                       float* dst) = 0;
  // sum: of diff_dst; product: of diff_dst · (src - mean) · rstd. The gradients of beta and gamma.
  virtual void sums(Stream& stream, const float* diff_dst, const float* src, const float* mean, const float* variance, float* sum,
                    float* product) = 0;
  // sum and product: of all elements that the statistics were measured over, as share of a mean (1 / their number); null: statistics are
  // given.
  virtual void backward_input(Stream& stream, const float* diff_dst, const float* src, const float* mean, const float* variance,
                              const float* sum, const float* product, const float* gamma, float* diff_src) = 0;
};

}  // namespace ppengine::ops
