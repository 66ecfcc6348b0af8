// Our SYCL kernels: sources embedded in the library, compiled at run time for the device, one bundle per file of ops/kernels/.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ppengine::ops {

class Device;
struct Kernel;

class KernelLibrary {
 public:
  explicit KernelLibrary(Device& device);
  ~KernelLibrary();

  // file: a source under ops/kernels without its ending; name: an extern "C" function in it. Builds the bundle on first use (seconds
  // the first time on a machine, then from the persistent cache). The reference stays valid as long as the library.
  const Kernel& get(std::string_view file, std::string_view name);
  // Builds all bundles now, in parallel.
  void prepare();
  // How many bundles were built and kernels looked up so far: constant in a steady step.
  size_t lookups() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ppengine::ops
