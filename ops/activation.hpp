// Activations: GELU (tanh and erf), SiLU, ReLU, and SiLU with a gate.
#pragma once

#include <memory>
#include <vector>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>
#include <ppengine/ops/kinds.hpp>

namespace ppengine::ops {

struct ActivationSpec {
  ActivationKind kind = ActivationKind::gelu_tanh;
  std::int64_t count = 0;
  Type type = Type::f32;
};

class Activation {
 public:
  static std::unique_ptr<Activation> make(Device& device, const ActivationSpec& spec);
  static std::vector<Considered> consider(const Device& device, const ActivationSpec& spec);
  static std::span<const Implementation<Activation, ActivationSpec>> implementations();  // all, in the order of trying
  virtual ~Activation() = default;
  virtual void forward(Stream& stream, const void* src, void* dst) = 0;  // src may be dst when no backward follows
  virtual void backward_input(Stream& stream, const void* src, const void* diff_dst, void* diff_src) = 0;  // diff_src may be diff_dst
};

// dst[rows,width] = silu(gate) · up. Rows of gate and up lie `stride` elements apart (so both may be halves of one [rows,2*width]).
struct GatedSiluSpec {
  std::int64_t rows = 0, width = 0;
  std::int64_t stride = 0;
  Type type = Type::f32;
};

class GatedSilu {
 public:
  static std::unique_ptr<GatedSilu> make(Device& device, const GatedSiluSpec& spec);
  virtual ~GatedSilu() = default;
  virtual void forward(Stream& stream, const void* gate, const void* up, void* dst) = 0;
  virtual void backward_input(Stream& stream, const void* gate, const void* up, const void* diff_dst, void* diff_gate, void* diff_up) = 0;
};

}  // namespace ppengine::ops
