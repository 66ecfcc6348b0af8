// Compiles one source of ops/kernels/ when the library is built, so that a first run compiles nothing and needs no C++ headers.
//
//   compile_kernels OUT_DIR SOURCE.cpp HEADER.hpp ...
//
// writes NAME.cpu (machine code for CPUs like this one) and NAME.spv (SPIR-V for other CPUs and devices). It uses nothing of the library
// but the format of the files, so that it need not run again when other sources change.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>
#include <sycl/sycl.hpp>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <vector>

#include <ppengine/ops/detail/program_file.hpp>

namespace {
namespace experimental = sycl::ext::oneapi::experimental;
namespace fs = std::filesystem;
using namespace ppengine::ops;

struct Source {
  std::string name, text;
  std::vector<std::pair<std::string, std::string>> headers;

  // As KernelLibrary puts it together (ops/device/kernel_library.cpp).
  std::string everything() const {
    std::string all = text;
    for (const auto& [header, contents] : headers) append_header(all, header, contents);
    return all;
  }
};

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const fs::path& path, const std::string& contents) {
  std::ofstream file(path, std::ios::binary);
  if (!file.write(contents.data(), static_cast<std::streamsize>(contents.size())).flush())
    throw std::runtime_error("cannot write " + path.string());
}

void check(cl_int error, const char* what) {
  if (error != CL_SUCCESS) throw std::runtime_error(std::string(what) + ": OpenCL error " + std::to_string(error));
}

template <class Bundle>
cl_program program_of(const Bundle& bundle) {
  const auto programs = sycl::get_native<sycl::backend::opencl>(bundle);
  if (programs.size() != 1) throw std::runtime_error("expected one program, there are " + std::to_string(programs.size()));
  return programs.front();
}

std::string spirv(cl_program program) {
  std::size_t bytes = 0;
  check(clGetProgramInfo(program, CL_PROGRAM_IL, 0, nullptr, &bytes), "CL_PROGRAM_IL");
  if (bytes == 0) throw std::runtime_error("the compiled program does not have its SPIR-V any more");
  std::string code(bytes, '\0');
  check(clGetProgramInfo(program, CL_PROGRAM_IL, bytes, code.data(), nullptr), "CL_PROGRAM_IL");
  return code;
}

std::string machine_code(cl_program program) {
  std::size_t bytes = 0;
  check(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof bytes, &bytes, nullptr), "CL_PROGRAM_BINARY_SIZES");
  std::string code(bytes, '\0');
  char* data = code.data();
  check(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof data, static_cast<void*>(&data), nullptr), "CL_PROGRAM_BINARIES");
  return code;
}

void compile(const fs::path& out, const Source& source) {
  const sycl::device device{sycl::cpu_selector_v};
  const sycl::context context{device};
  experimental::include_files includes;
  for (const auto& [name, text] : source.headers) includes.add(name, text);
  auto bundle = experimental::create_kernel_bundle_from_source(context, experimental::source_language::sycl, source.text,
                                                               experimental::properties{includes});

  const cl_program built = program_of(experimental::build(bundle));
  const std::string all = source.everything();
  const std::uint64_t native = native_program_key(device.get_info<sycl::info::device::driver_version>(),
                                                  device.get_platform().get_info<sycl::info::platform::version>(), all);
  write(out / (source.name + ".cpu"), pack_program(native, machine_code(built)));
  write(out / (source.name + ".spv"), pack_program(spirv_program_key(all), spirv(built)));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: compile_kernels OUT_DIR SOURCE.cpp HEADER.hpp ...\n");
    return 2;
  }
  try {
    Source source{fs::path(argv[2]).stem(), read(argv[2]), {}};
    for (int i = 3; i < argc; ++i) source.headers.emplace_back(fs::path(argv[i]).filename(), read(argv[i]));
    fs::create_directories(argv[1]);
    compile(argv[1], source);
  } catch (const std::exception& e) {
    std::fprintf(stderr,
                 "compile_kernels: %s: %s\nConfigure with -D PPENGINE_SHIP_KERNELS=OFF to compile kernels when they are first used.\n",
                 argv[2], e.what());
    std::fflush(nullptr);
    std::_Exit(1);
  }
  std::_Exit(0);  // the run-time compiler's tables are gone before its bundles are freed at exit
}
