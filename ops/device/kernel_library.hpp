// Our SYCL kernels: sources embedded in the library, compiled at run time for the device, one bundle per file of ops/kernels/.
#pragma once

#include <future>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ppengine::ops {

class Device;
struct Kernel;

class KernelLibrary {
 public:
  explicit KernelLibrary(Device& device);

  // file: a source under ops/kernels without its ending; name: an extern "C" function in it. Builds the bundle on first use (seconds
  // the first time on a machine, then from the persistent cache). The reference stays valid as long as the library.
  const Kernel& get(std::string_view file, std::string_view name);
  // Builds all bundles now, in parallel.
  void prepare();
  // Builds these in another thread, one after the other; whoever needs one before waits for it. The library must outlive the result.
  std::future<void> prepare_soon(std::vector<std::string> files);
  // How many bundles were built and kernels looked up so far: constant in a steady step.
  std::size_t lookups() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace ppengine::ops
