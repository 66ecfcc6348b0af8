// SYCL kernels of your own source, compiled at run time for whatever device there is: for ops of your own (Graph::custom).
//
//   const char* text = R"(#include "common.hpp"
//   KERNEL_1D twice(const float* x, float* y, long count) {
//     const long i = item_1d().get_global_id(0);
//     if (i < count) y[i] = 2 * x[i];
//   })";
//   ops::SourceKernels kernels(device, "twice", text);
//   kernels.launch(stream, "twice", count, {x, y, count});
//
// common.hpp brings SYCL, KERNEL_1D (a free function with a plain name, over work-items in one dimension) and item_1d(). See
// examples/custom_op for an op with its gradients.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include <ppengine/ops/device/stream.hpp>

namespace ppengine::ops {

// A pointer to device memory, a `long` or a `float`, as the kernel declares it.
struct KernelArgument {
  enum class Kind { pointer, integer, number };
  KernelArgument(void* value) : kind(Kind::pointer), pointer(value) {}
  KernelArgument(const void* value) : kind(Kind::pointer), pointer(const_cast<void*>(value)) {}
  KernelArgument(std::int64_t value) : kind(Kind::integer), integer(value) {}
  KernelArgument(float value) : kind(Kind::number), number(value) {}

  Kind kind;
  void* pointer = nullptr;
  std::int64_t integer = 0;
  float number = 0;
};

class SourceKernels {
 public:
  // Compiles the text, or takes it from the cache of compiled kernels. `name`: for messages. DeviceError with the compiler's own words
  // where it does not compile. Equal texts are compiled once for a device; they stay until the process ends.
  SourceKernels(Device& device, const std::string& name, const std::string& text);

  // So many work-items at least: rounded up to whole work-groups, so the kernel looks where its data ends. DeviceError where there is no
  // such kernel.
  void launch(Stream& stream, const std::string& kernel, std::int64_t items, std::initializer_list<KernelArgument> arguments) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ppengine::ops
