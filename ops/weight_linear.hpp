// A linear layer of inference: forward only, weights in any WeightFormat, f32 arithmetic (but byte_inputs), with the norm before it and the
// activation behind it. Few rows (decoding) are one kernel that is bound by the reading of the weights; many (prefill, evaluation) use
// Linear.
#pragma once

#include <memory>
#include <optional>

#include <ppengine/ops/activation.hpp>
#include <ppengine/ops/norm.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::ops {

struct WeightLinearSpec {
  std::int64_t rows = 0;
  PackedWeight weight;
  bool bias = false;
  bool residual = false;  // dst += residual; not with an activation
  struct NormBefore {
    NormKind kind = NormKind::layer;
    float epsilon = 1e-5f;
    bool bias = true;
  };
  std::optional<NormBefore> norm = {};
  std::optional<ActivationKind> activation = {};
  bool gated = false;  // dst = silu(gate) · linear
  // With int4 on CPUs with vectors: inputs are rounded to 8 bits, 32 sharing a scale, and multiplied as integers. Elsewhere it is ignored.
  bool byte_inputs = false;
};

class WeightLinear {
 public:
  // Up to so many rows are one kernel.
  static constexpr std::int64_t few_rows = 8;

  struct Operands {
    const float* src = nullptr;
    const void* weight = nullptr;
    const float* bias = nullptr;
    const float* residual = nullptr;  // may be dst
    const float* gate = nullptr;
    const float* gamma = nullptr;
    const float* beta = nullptr;
    float* dst = nullptr;
    void* workspace = nullptr;
  };

  static std::unique_ptr<WeightLinear> make(Device& device, const WeightLinearSpec& spec);
  virtual ~WeightLinear() = default;
  virtual std::size_t workspace_bytes() const = 0;
  virtual void forward(Stream& stream, const Operands& operands) = 0;
};

}  // namespace ppengine::ops
