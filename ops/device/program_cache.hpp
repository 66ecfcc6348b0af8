// Compiled kernels of OpenCL devices (CPUs) in files. SYCL keeps them too, but parses a source to know whether it has it: a quarter of a
// second for each file of ops/kernels/, more than all else that happens at start.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <ppengine/ops/detail/sycl.hpp>

struct _cl_program;

namespace ppengine::ops {

using KernelBundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

// The kernels of one source file, from a file. Never freed, like all compiled kernels.
class CachedProgram {
 public:
  CachedProgram(_cl_program* program, sycl::context context) : program_(program), context_(std::move(context)) {}
  sycl::kernel kernel(const std::string& name) const;

 private:
  _cl_program* program_;
  sycl::context context_;
};

// `source`: all that the result depends on but the device and its driver. From what was compiled with the library, else from the
// user's cache. Nothing where the device is of another kind, the cache is switched off (SYCL_CACHE_PERSISTENT=0), or there is no such file,
// or a damaged one.
std::optional<CachedProgram> load_program(const Device& device, std::string_view name, std::string_view source);
// The SPIR-V that was compiled with the library for devices of this kind; empty where there is none, or it is of another source.
std::string shipped_spirv(const Device& device, std::string_view name, std::string_view source);
// Where it cannot be kept, the next run compiles again.
void store_program(const Device& device, std::string_view name, std::string_view source, const KernelBundle& bundle);

}  // namespace ppengine::ops
