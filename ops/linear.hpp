// Linear: dst[rows,out] = src[rows,in] · W + bias (+ residual), with the two halves of its gradient apart.
#pragma once

#include <memory>
#include <vector>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>
#include <ppengine/ops/kinds.hpp>

namespace ppengine::ops {

struct LinearSpec {
  std::int64_t rows = 0, in = 0, out = 0;
  WeightLayout layout = WeightLayout::out_in;
  bool bias = false;
  bool residual = false;      // forward adds a [rows,out] tensor
  bool add_diff_src = false;  // backward_input adds a [rows,in] tensor
  Type type = Type::f32;      // of activations, weights and bias; gradients of weights are always f32
};

class Linear {
 public:
  static std::unique_ptr<Linear> make(Device& device, const LinearSpec& spec);
  static std::vector<Considered> consider(const Device& device, const LinearSpec& spec);
  virtual ~Linear() = default;

  // bias and residual are null where the spec has none; residual may be dst.
  virtual void forward(Stream& stream, const void* src, const void* weight, const void* bias, const void* residual, void* dst) = 0;
  // diff_src[rows,in] = diff_dst[rows,out] · Wᵀ (+ add; add may be diff_src).
  virtual void backward_input(Stream& stream, const void* diff_dst, const void* weight, const void* add, void* diff_src) = 0;
  // diff_weight (+)= srcᵀ · diff_dst in W's own layout; diff_bias[out] (+)= column sums of diff_dst. With accumulate they are added to
  // what is there, in the same pass; without, what was there is overwritten.
  virtual void backward_weight(Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias,
                               bool accumulate) = 0;
};

// The layout in which a weight of this size is fastest in all three directions on the device.
WeightLayout preferred_layout(const Device& device, std::int64_t in, std::int64_t out);

}  // namespace ppengine::ops
