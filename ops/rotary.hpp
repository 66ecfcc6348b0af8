// Rotary position embedding (Llama's convention: element d pairs with d + half).
#pragma once

#include <memory>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops {

struct RotarySpec {
  std::int64_t batch = 0, length = 0, heads = 0, head_dim = 0;
  std::int64_t src_stride = 0, dst_stride = 0;  // between tokens, in elements
  Type type = Type::f32;
  std::int64_t turned = -1;  // heads that are turned, the first ones; the others (values) are copied; -1: all
  std::int64_t half = -1;    // pairs of a head; what lies behind its first 2 * half elements is copied; -1: head_dim / 2
  std::int64_t parts = 1;    // above 1: src has heads as [head, part] (a head's query, key and value), dst as [part, head]
};

class Rotary {
 public:
  static std::unique_ptr<Rotary> make(Device& device, const RotarySpec& spec);
  virtual ~Rotary() = default;
  // cosines, sines: f32 [positions, half]. Token (b,t) has position first[b] + t (first null: 0). src may be dst where parts is 1.
  virtual void forward(Stream& stream, const void* src, const float* cosines, const float* sines, const std::int32_t* first, void* dst) = 0;
  // The rotation back: diff_src from diff_dst (diff_src has src's stride).
  virtual void backward_input(Stream& stream, const void* diff_dst, const float* cosines, const float* sines, const std::int32_t* first,
                              void* diff_src) = 0;
};

}  // namespace ppengine::ops
