// Every environment variable that the library reads or sets.
#include <ppengine/base/environment.hpp>

#include <dlfcn.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <mutex>

#include <ppengine/base/error.hpp>

namespace ppengine::environment {
namespace {

std::string get(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

void set_default(const char* name, const std::string& value) {
  if (!value.empty()) setenv(name, value.c_str(), 0);
}

// libintelocl.so lies beside libsycl.so in the wheels and in oneAPI's compiler folder; the loader finds it through our RPATH.
std::string opencl_driver() {
  void* library = dlopen("libintelocl.so", RTLD_LAZY | RTLD_LOCAL);
  if (!library) return "";
  std::string path;
  Dl_info info;
  if (void* symbol = dlsym(library, "clGetExtensionFunctionAddress"); symbol && dladdr(symbol, &info) && info.dli_fname)
    path = info.dli_fname;
  return path;  // stays loaded: the OpenCL loader opens it again anyway
}

}  // namespace

bool onednn_enabled() {
  const std::string value = get("PPENGINE_ONEDNN");
  return value != "off" && value != "0";
}

int standin_gpus() {
  const std::string value = get("PPENGINE_STANDIN_GPUS");
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (!value.empty() && (error != std::errc() || end != value.data() + value.size() || count < 0 || count > 64))
    throw ConfigError("PPENGINE_STANDIN_GPUS=" + value + ": give a number from 0 to 64");
  return count;
}

std::string isa() {
  const std::string value = get("PPENGINE_ISA");
  if (value == "native") return "";
  if (!value.empty() && value != "sse4" && value != "avx2" && value != "avx512")
    throw ConfigError("PPENGINE_ISA=" + value + ": sse4, avx2, avx512 and native are available");
  return value;
}

std::string cache_folder() {
  if (const std::string own = get("PPENGINE_CACHE"); !own.empty()) return own;
  if (const std::string xdg = get("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/ppengine";
  if (const std::string home = get("HOME"); !home.empty()) return home + "/.cache/ppengine";
  return std::filesystem::temp_directory_path().string() + "/ppengine-cache";
}

std::string own_folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&own_folder), &info);
  return (std::filesystem::path(info.dli_fname ? info.dli_fname : "").parent_path() / "ppengine").string();
}

ShippedKernels shipped_kernels() {
  const std::string value = get("PPENGINE_SHIPPED_KERNELS");
  return value == "off" ? ShippedKernels::off : value == "spirv" ? ShippedKernels::spirv : ShippedKernels::all;
}

bool kernel_cache_enabled() { return get("SYCL_CACHE_PERSISTENT") != "0"; }

void prepare_sycl() {
  static std::once_flag once;
  std::call_once(once, [] {
    set_default("OCL_ICD_FILENAMES", opencl_driver());
    set_default("SYCL_CACHE_PERSISTENT", "1");
    const std::string limit = isa();
    set_default("SYCL_CACHE_DIR", cache_folder() + "/kernels" + (limit.empty() ? "" : "-" + limit));
    // oneDNN and the CPU's OpenCL driver read these when they are first used.
    set_default("ONEDNN_MAX_CPU_ISA", limit == "sse4" ? "SSE41" : limit == "avx2" ? "AVX2" : "");
    set_default("CL_CONFIG_CPU_TARGET_ARCH", limit == "sse4" ? "corei7" : limit == "avx2" ? "core-avx2" : "");
  });
}

void aim_nvidia_compiler(const std::string& architecture, const std::string& features) {
  // One without the other ends the process where they do not fit.
  if (!get("SYCL_JIT_AMDGCN_PTX_TARGET_CPU").empty() || !get("SYCL_JIT_AMDGCN_PTX_TARGET_FEATURES").empty()) return;
  set_default("SYCL_JIT_AMDGCN_PTX_TARGET_CPU", architecture);
  set_default("SYCL_JIT_AMDGCN_PTX_TARGET_FEATURES", features);
}

}  // namespace ppengine::environment
