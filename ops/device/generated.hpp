// Kernels whose text the engine writes: collected while a stage is compiled, built as one bundle, then launched by number.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <ppengine/ops/device/stream.hpp>

namespace ppengine::ops {

struct Kernel;

// Sizes, strides and scalars of a launch: the same text serves all shapes. The kernels' own view of it is in generated.cpp.
struct KernelNumbers {
  static constexpr int capacity = 112;
  std::int64_t n[capacity] = {};
  float f[4] = {};
};

class GeneratedKernels {
 public:
  explicit GeneratedKernels(Device& device) : device_(device) {}
  GeneratedKernels(const GeneratedKernels&) = delete;

  // A kernel's text: "KERNEL_1D NAME(void* p0, ..., Numbers q) { ... }". Equal texts are one kernel. Its number.
  int add(const std::string& text);
  // Compiles what was added; from the persistent cache where it was compiled before.
  void build();
  // pointers: as many as the text has, in its order.
  void launch(Stream& stream, int kernel, std::size_t groups, std::size_t size, std::span<void* const> pointers,
              const KernelNumbers& numbers) const;
  Device& device() const { return device_; }

 private:
  Device& device_;
  std::vector<std::string> texts_;
  std::map<std::string, int> index_;
  std::vector<const Kernel*> kernels_;
};

}  // namespace ppengine::ops
