// The texts of ops/kernels/, embedded at build time by cmake/EmbedKernels.cmake.
#pragma once

#include <span>
#include <string_view>

namespace ppengine::ops {

struct KernelSource {
  std::string_view name;  // without folder; sources without their ending
  std::string_view text;
};

// A source or header that only NVIDIA devices compile.
constexpr bool for_tensor_cores(std::string_view name) { return name.find("tensor") != std::string_view::npos; }

std::span<const KernelSource> kernel_sources();
std::span<const KernelSource> kernel_headers();
// Throws a broken invariant when there is no such file.
const KernelSource& kernel_source(std::string_view name);

}  // namespace ppengine::ops
