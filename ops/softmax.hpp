// Softmax over the last dimension of [rows,width].
#pragma once

#include <memory>
#include <vector>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops {

struct SoftmaxSpec {
  std::int64_t rows = 0, width = 0;
  Type type = Type::f32;
};

class Softmax {
 public:
  static std::unique_ptr<Softmax> make(Device& device, const SoftmaxSpec& spec);
  static std::vector<Considered> consider(const Device& device, const SoftmaxSpec& spec);
  static std::span<const Implementation<Softmax, SoftmaxSpec>> implementations();  // all, in the order of trying
  virtual ~Softmax() = default;
  virtual void forward(Stream& stream, const void* src, void* dst) = 0;
  // dst is forward's result; diff_src may be diff_dst.
  virtual void backward_input(Stream& stream, const void* dst, const void* diff_dst, void* diff_src) = 0;
};

}  // namespace ppengine::ops
