// Compiled kernels in files, through OpenCL's own interface.
#include <ppengine/ops/device/program_cache.hpp>

#include <CL/cl.h>
#include <dlfcn.h>
#include <fmt/core.h>

#include <cstring>
#include <vector>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/base/log.hpp>

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

bool usable(const Device& device) {
  return device.impl().device.get_backend() == sycl::backend::opencl && environment::kernel_cache_enabled() && OpenCl::get();
}

// What a file begins with; the compiled program follows.
struct Header {
  char magic[8];
  uint64_t key, content, bytes;
};
constexpr char magic[9] = "ppekern1";
constexpr uint64_t max_bytes = uint64_t{64} << 20;

uint64_t key_of(const Device& device, std::string_view source) {
  const sycl::device& on = device.impl().device;
  return hash_text(fmt::format("{}\n{}\n{}\n{}\n{}.{}.{}\n{}", environment::isa(), on.get_info<sycl::info::device::name>(),
                               on.get_info<sycl::info::device::driver_version>(),
                               on.get_platform().get_info<sycl::info::platform::version>(), __LIBSYCL_MAJOR_VERSION,
                               __LIBSYCL_MINOR_VERSION, __LIBSYCL_PATCH_VERSION, source));
}

std::filesystem::path file_of(std::string_view name, uint64_t key) {
  return std::filesystem::path(environment::cache_folder()) / "programs" / fmt::format("{}-{:016x}", name, key);
}

// The program of a file whose contents are as they were written.
std::string read_program(const std::filesystem::path& path, uint64_t key) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  std::string text = read_file(path, max_bytes);
  Header header;
  if (text.size() < sizeof header) return {};
  std::memcpy(&header, text.data(), sizeof header);
  text.erase(0, sizeof header);
  const bool intact = std::memcmp(header.magic, magic, sizeof header.magic) == 0 && header.key == key && header.bytes == text.size() &&
                      header.content == hash_text(text);
  return intact ? text : std::string();
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
  if (!usable(device)) return {};
  try {
    const uint64_t key = key_of(device, source);
    const std::string text = read_program(file_of(name, key), key);
    if (text.empty()) return {};
    const OpenCl& api = OpenCl::get();
    cl_device_id on = sycl::get_native<sycl::backend::opencl>(device.impl().device);
    const cl_context context = sycl::get_native<sycl::backend::opencl>(device.impl().context);
    const size_t bytes = text.size();
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

void store_program(const Device& device, std::string_view name, std::string_view source, const KernelBundle& bundle) {
  if (!usable(device)) return;
  try {
    const auto programs = sycl::get_native<sycl::backend::opencl>(bundle);
    if (programs.size() != 1) return;
    const OpenCl& api = OpenCl::get();
    size_t bytes = 0;
    if (api.program_info(programs.front(), CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr) != CL_SUCCESS || bytes == 0) return;
    std::vector<unsigned char> binary(bytes);
    unsigned char* data = binary.data();
    if (api.program_info(programs.front(), CL_PROGRAM_BINARIES, sizeof data, static_cast<void*>(&data), nullptr) != CL_SUCCESS) return;
    const std::string_view text(reinterpret_cast<const char*>(data), bytes);
    Header header{{}, key_of(device, source), hash_text(text), bytes};
    std::memcpy(header.magic, magic, sizeof header.magic);
    const std::filesystem::path path = file_of(name, header.key);
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, std::string(reinterpret_cast<const char*>(&header), sizeof header).append(text));
  } catch (const std::exception& e) {
    log::debug(fmt::format("kernels/{}: not kept in the cache: {}", name, e.what()));
  }
}

}  // namespace ppengine::ops
