// Layer norm and RMS norm over the last dimension of [rows,width].
#pragma once

#include <memory>
#include <vector>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>
#include <ppengine/ops/kinds.hpp>

namespace ppengine::ops {

struct NormSpec {
  NormKind kind = NormKind::layer;
  std::int64_t rows = 0, width = 0;
  float epsilon = 1e-5f;
  bool bias = true;           // beta; never with rms
  bool add_diff_src = false;  // backward_input adds a [rows,width] tensor
  Type type = Type::f32;
  float gamma_shift = 0;  // what is multiplied with is gamma + gamma_shift (Gemma: 1)
};

class Norm {
 public:
  static std::unique_ptr<Norm> make(Device& device, const NormSpec& spec);
  static std::vector<Considered> consider(const Device& device, const NormSpec& spec);
  static std::span<const Implementation<Norm, NormSpec>> implementations();  // all, in the order of trying
  virtual ~Norm() = default;

  // mean[rows] (layer only; may be null for rms) and rstd[rows] are kept for the backward; both f32. They belong to this op: oneDNN keeps
  // the variance in rstd.
  virtual void forward(Stream& stream, const void* src, const void* gamma, const void* beta, void* dst, float* mean, float* rstd) = 0;
  // add is null where the spec has none; it may be diff_src.
  virtual void backward_input(Stream& stream, const void* src, const void* diff_dst, const void* gamma, const float* mean,
                              const float* rstd, const void* add, void* diff_src) = 0;
  virtual void backward_weight(Stream& stream, const void* src, const void* diff_dst, const float* mean, const float* rstd,
                               float* diff_gamma, float* diff_beta, bool accumulate) = 0;
};

}  // namespace ppengine::ops
