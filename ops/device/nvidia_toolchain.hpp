// What libsycl-jit (2026.2) needs to compile for NVIDIA devices, and does not find by itself. Free of SYCL, so that tools/ptx uses it too.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ppengine::ops {

// The CUDA toolkit whose libdevice is linked into every kernel: CUDA_HOME, CUDA_PATH or /usr/local/cuda; empty where none of them has one.
std::filesystem::path cuda_toolkit();

// The options of every compile for NVIDIA: where the toolkit lies, and where the compiler's own built-in functions do. It carries these
// inside, but looks for them under /lib/clang/23, where nobody has them: they are written to `folder` once. std::runtime_error that says
// what is missing.
std::vector<std::string> nvidia_compile_options(const std::filesystem::path& folder);

}  // namespace ppengine::ops
