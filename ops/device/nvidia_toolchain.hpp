// Where the CUDA toolkit lies that libsycl-jit (2026.2) needs to compile for NVIDIA devices. Free of SYCL, so that tools/ptx uses it too.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace ppengine::ops {

// The toolkit whose libdevice is linked into every kernel: CUDA_HOME, CUDA_PATH or /usr/local/cuda; empty where none of them has one.
std::filesystem::path cuda_toolkit();

// The options of every compile for NVIDIA. std::runtime_error that says what is missing: without a toolkit the compiler compiles nothing,
// -nocudalib or not.
std::vector<std::string> nvidia_compile_options();

}  // namespace ppengine::ops
