// Group norm over [samples, channels, places], on CPUs.
#pragma once

#include <memory>

#include <ppengine/ops/device/stream.hpp>

namespace ppengine::ops {

struct GroupNormSpec {
  std::int64_t samples = 0, channels = 0, groups = 1, places = 0;
  float epsilon = 1e-5f;
};

class GroupNorm {
 public:
  // Null where the device is no CPU with vectors: generated kernels serve (engine/tensor/group_norm.cpp).
  static std::unique_ptr<GroupNorm> make(Device& device, const GroupNormSpec& spec);
  virtual ~GroupNorm() = default;
  // mean, rstd: [samples, groups], kept for the backward. gamma and beta [channels] may be null.
  virtual void forward(Stream& stream, const float* src, const float* gamma, const float* beta, float* dst, float* mean, float* rstd) = 0;
  // sums [samples, channels]: of diff_dst; products: of diff_dst · (src - mean) · rstd. Their sums over samples are the gradients of beta
  // and gamma.
  virtual void backward(Stream& stream, const float* diff_dst, const float* src, const float* mean, const float* rstd, const float* gamma,
                        float* diff_src, float* sums, float* products) = 0;
  virtual void backward_weight(Stream& stream, const float* sums, const float* products, float* diff_gamma, float* diff_beta,
                               bool accumulate) = 0;
};

}  // namespace ppengine::ops
