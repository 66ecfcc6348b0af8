// Compiled kernels in files, through OpenCL's own interface.
#include <ppengine/ops/device/program_cache.hpp>

#include <CL/cl.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <vector>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/ops/detail/program_file.hpp>

namespace ppengine::ops {
namespace {

// SYCL's OpenCL adapter has loaded the library; where there is none, there are no OpenCL devices.
struct OpenCl {
  decltype(&clCreateProgramWithBinary) create_program = nullptr;
  decltype(&clBuildProgram) build_program = nullptr;
  decltype(&clReleaseProgram) release_program = nullptr;
  decltype(&clGetProgramInfo) program_info = nullptr;
  decltype(&clCreateKernel) create_kernel = nullptr;

  static const OpenCl& get() {
    static const OpenCl found = [] {
      OpenCl api;
      void* const library = dlopen("libOpenCL.so.1", RTLD_LAZY | RTLD_LOCAL);
      if (!library) return api;
      const auto find = [&](auto& function, const char* name) {
        function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
        return function != nullptr;
      };
      api.complete_ = find(api.create_program, "clCreateProgramWithBinary") && find(api.build_program, "clBuildProgram") &&
                      find(api.release_program, "clReleaseProgram") && find(api.program_info, "clGetProgramInfo") &&
                      find(api.create_kernel, "clCreateKernel");
      return api;
    }();
    return found;
  }
  explicit operator bool() const { return complete_; }

 private:
  bool complete_ = false;
};

bool is_opencl(const Device& device) { return device.impl().device.get_backend() == sycl::backend::opencl && OpenCl::get(); }
bool usable(const Device& device) { return is_opencl(device) && environment::kernel_cache_enabled(); }

constexpr std::uint64_t max_bytes = std::uint64_t{64} << 20;

std::uint64_t key_of(const Device& device, std::string_view source) {
  const sycl::device& on = device.impl().device;
  return hash_text(fmt::format("{}\n{}\n{}\n{}\n{}.{}.{}\n{}", environment::isa(), on.get_info<sycl::info::device::name>(),
                               on.get_info<sycl::info::device::driver_version>(),
                               on.get_platform().get_info<sycl::info::platform::version>(), __LIBSYCL_MAJOR_VERSION,
                               __LIBSYCL_MINOR_VERSION, __LIBSYCL_PATCH_VERSION, source));
}

std::filesystem::path file_of(std::string_view name, std::uint64_t key) {
  return std::filesystem::path(environment::cache_folder()) / "programs" / fmt::format("{}-{:016x}", name, key);
}

std::string read_program(const std::filesystem::path& path, std::uint64_t key) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  return unpack_program(read_file(path, max_bytes), key);
}

std::filesystem::path shipped_file(std::string_view name, const char* ending) {
  return std::filesystem::path(environment::own_folder()) / "kernels" / fmt::format("{}{}", name, ending);
}

// Machine code that was compiled with the library, where this CPU is like the one it was compiled on.
std::string shipped_program(const Device& device, std::string_view name, std::string_view source) {
  if (environment::shipped_kernels() != environment::ShippedKernels::all || !device.info().is_cpu) return {};
  const sycl::device& on = device.impl().device;
  const std::uint64_t key = native_program_key(on.get_info<sycl::info::device::driver_version>(),
                                               on.get_platform().get_info<sycl::info::platform::version>(), source);
  return read_program(shipped_file(name, ".cpu"), key);
}

}  // namespace

sycl::kernel CachedProgram::kernel(const std::string& name) const {
  const OpenCl& api = OpenCl::get();
  PPENGINE_ASSERT(api);  // the program was loaded with it
  cl_int error = 0;
  const cl_kernel found = api.create_kernel(program_, ("__sycl_kernel_" + name).c_str(), &error);
  if (!found) throw DeviceError(fmt::format("the compiled kernels have no '{}' (OpenCL error {})", name, error), ExitCode::failed);
  return sycl::make_kernel<sycl::backend::opencl>(found, context_);
}

std::optional<CachedProgram> load_program(const Device& device, std::string_view name, std::string_view source) {
  if (!is_opencl(device)) return {};
  try {
    std::string text = shipped_program(device, name, source);
    if (text.empty() && environment::kernel_cache_enabled()) {
      const std::uint64_t key = key_of(device, source);
      text = read_program(file_of(name, key), key);
    }
    if (text.empty()) return {};
    const OpenCl& api = OpenCl::get();
    cl_device_id on = sycl::get_native<sycl::backend::opencl>(device.impl().device);
    const cl_context context = sycl::get_native<sycl::backend::opencl>(device.impl().context);
    const std::size_t bytes = text.size();
    const auto* data = reinterpret_cast<const unsigned char*>(text.data());
    cl_int error = 0;
    const cl_program program = api.create_program(context, 1, &on, &bytes, &data, nullptr, &error);
    if (!program) return {};
    if (api.build_program(program, 1, &on, "", nullptr, nullptr) == CL_SUCCESS) return CachedProgram(program, device.impl().context);
    api.release_program(program);
  } catch (const std::exception& e) {
    log::debug(fmt::format("kernels/{}: not taken from the cache: {}", name, e.what()));
  }
  return {};
}

std::string shipped_spirv(const Device& device, std::string_view name, std::string_view source) {
  const sycl::backend backend = device.impl().device.get_backend();
  const bool takes_spirv = backend == sycl::backend::opencl || backend == sycl::backend::ext_oneapi_level_zero;
  if (environment::shipped_kernels() == environment::ShippedKernels::off || !takes_spirv) return {};
  try {
    return read_program(shipped_file(name, ".spv"), spirv_program_key(source));
  } catch (const Error& e) {
    log::debug(fmt::format("kernels/{}: {}", name, e.what()));
    return {};
  }
}

void store_program(const Device& device, std::string_view name, std::string_view source, const KernelBundle& bundle) {
  if (!usable(device)) return;
  try {
    const auto programs = sycl::get_native<sycl::backend::opencl>(bundle);
    if (programs.size() != 1) return;
    const OpenCl& api = OpenCl::get();
    std::size_t bytes = 0;
    if (api.program_info(programs.front(), CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr) != CL_SUCCESS || bytes == 0) return;
    std::vector<unsigned char> binary(bytes);
    unsigned char* data = binary.data();
    if (api.program_info(programs.front(), CL_PROGRAM_BINARIES, sizeof data, static_cast<void*>(&data), nullptr) != CL_SUCCESS) return;
    const std::uint64_t key = key_of(device, source);
    const std::filesystem::path path = file_of(name, key);
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, pack_program(key, std::string_view(reinterpret_cast<const char*>(data), bytes)));
  } catch (const std::exception& e) {
    log::debug(fmt::format("kernels/{}: not kept in the cache: {}", name, e.what()));
  }
}

}  // namespace ppengine::ops
