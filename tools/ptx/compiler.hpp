// SYCL kernels to PTX on a machine without an NVIDIA device, with the compiler that the SYCL runtime uses (libsycl-jit).
#pragma once

#include <string>
#include <vector>

namespace ppengine::tools {

struct SourceFile {
  std::string name, text;
};

class PtxCompiler {
 public:
  // One trivial kernel is compiled and dropped: the first compile of a process leaves built-in functions as
  // calls (norm.cpp: 423 against 3), and the engine drops one in the same way (ops/device/nvidia.cpp).
  PtxCompiler();
  // Throws std::runtime_error with the compiler's messages.
  std::string compile(const SourceFile& source, const std::vector<SourceFile>& headers) const;

 private:
  void* entry_;
  std::vector<std::string> options_;
};

}  // namespace ppengine::tools
