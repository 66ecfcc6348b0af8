// SYCL kernels to PTX through libsycl-jit's own entry point. The layout of the structs belongs to release 2026.2 (scripts/toolchain.txt).
#include "compiler.hpp"

#include <dlfcn.h>

#include <cstdint>
#include <cstring>
#include <stdexcept>

#include <ppengine/ops/device/nvidia_toolchain.hpp>

#include "builtins.hpp"

namespace ppengine::tools {
namespace {

struct MemoryFile {
  const char *path, *contents;
};
template <class T>
struct View {
  const T* begin;
  std::size_t size;
};
struct Image {
  std::uint64_t format, address_bits;
  const char* bytes;
  std::uint64_t size;
};
struct Result {
  std::uint32_t error, padding;
  const Image* images;
  std::uint64_t image_count;
  char* ir;
  std::uint64_t ir_size;
  void* options;
  const char* log;
  char rest[4096];  // more than the release writes
};
constexpr int ptx_format = 3;
using Compile = Result (*)(MemoryFile, View<MemoryFile>, View<const char*>, View<char>, bool, int);

// A setting, as the SYCL runtime hands on what it finds in SYCL_JIT_AMDGCN_PTX_TARGET_CPU and _FEATURES. The library keeps it.
struct Setting {
  Setting(std::uint32_t which, const char* text) : number(which), value(strdup(text)), length(std::strlen(text)) {}
  virtual ~Setting() = default;
  std::uint32_t number;
  char* value;
  std::size_t length;
};
constexpr std::uint32_t target_cpu = 1, target_features = 2;
using Configure = void (*)(Setting** setting);

constexpr const char* throwaway = R"(#include <sycl/sycl.hpp>
namespace free_function = sycl::ext::oneapi::experimental;
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((free_function::nd_range_kernel<1>)) void nothing(float* x) { *x = sycl::sqrt(*x); }
)";

}  // namespace

PtxCompiler::PtxCompiler() {
  void* library = dlopen("libsycl-jit.so", RTLD_NOW);
  if (!library) throw std::runtime_error(dlerror());
  entry_ = dlsym(library, "compileSYCL");
  const auto configure = reinterpret_cast<Configure>(dlsym(library, "addToJITConfiguration"));
  if (!entry_ || !configure)
    throw std::runtime_error(
        "libsycl-jit.so has no compileSYCL or addToJITConfiguration: it is of another release than scripts/toolchain.txt");
  // The oldest architecture whose tensor cores our kernels use; every later one takes its PTX too.
  for (auto* setting : {new Setting(target_cpu, "sm_80"), new Setting(target_features, "+ptx70")}) configure(&setting);
  options_ = ops::nvidia_compile_options();
  serve_builtins();
  compile({"throwaway.cpp", throwaway}, {});
}

std::string PtxCompiler::compile(const SourceFile& source, const std::vector<SourceFile>& headers) const {
  std::vector<MemoryFile> files;
  for (const SourceFile& header : headers) files.push_back({header.name.c_str(), header.text.c_str()});
  std::vector<const char*> options;
  for (const std::string& option : options_) options.push_back(option.c_str());
  // The library would free the result with tables that are gone at exit: it stays.
  const auto* result =
      new Result(reinterpret_cast<Compile>(entry_)({source.name.c_str(), source.text.c_str()}, {files.data(), files.size()},
                                                   {options.data(), options.size()}, {nullptr, 0}, false, ptx_format));
  if (result->error != 0) throw std::runtime_error(source.name + ": " + result->log);
  if (result->image_count != 1)
    throw std::runtime_error(source.name + ": expected one image, there are " + std::to_string(result->image_count));
  return {result->images[0].bytes, result->images[0].size};
}

}  // namespace ppengine::tools
