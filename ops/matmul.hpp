// Batched matrix product with any strides: c[b,m,n] = alpha · a[b,m,k] · b[b,k,n] (+ c).
#pragma once

#include <memory>
#include <vector>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/tensor.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops {

struct MatmulSpec {
  // Shapes and strides count, data does not. 2 to 4 dimensions, the leading ones are the batch (a batch dimension of 1 is repeated).
  // A transposed operand is one with swapped strides.
  Tensor a, b, c;
  float alpha = 1.0f;
  bool accumulate = false;
};

class Matmul {
 public:
  static std::unique_ptr<Matmul> make(Device& device, const MatmulSpec& spec);
  static std::vector<Considered> consider(const Device& device, const MatmulSpec& spec);
  virtual ~Matmul() = default;
  virtual void run(Stream& stream, const void* a, const void* b, void* c) = 0;
};

}  // namespace ppengine::ops
