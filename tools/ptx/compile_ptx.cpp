// Compiles sources of ops/kernels/ to PTX, without an NVIDIA device or root. Needs a CUDA toolkit's libdevice; exit code 77 where there is
// none.
//
//   compile_ptx OUT_DIR SOURCE.cpp ... HEADER.hpp ...        e.g. compile_ptx build/ptx ops/kernels/*
//
// writes OUT_DIR/NAME.ptx. Its first line is a hash of all that it was made from: what fits is not compiled again.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <stdexcept>

#include <ppengine/base/hash.hpp>
#include <ppengine/ops/detail/kernel_sources.hpp>
#include <ppengine/ops/device/nvidia_toolchain.hpp>

#include "compiler.hpp"

namespace {
namespace fs = std::filesystem;
using namespace ppengine::tools;

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

void write(const fs::path& path, const std::string& contents) {
  const fs::path partial = path.string() + ".part";
  std::ofstream file(partial, std::ios::binary);
  if (!file.write(contents.data(), static_cast<std::streamsize>(contents.size())).flush())
    throw std::runtime_error("cannot write " + partial.string());
  fs::rename(partial, path);
}

// All that the PTX of a file depends on.
std::string everything(const SourceFile& source, const std::vector<SourceFile>& headers) {
  std::string text = source.text + ppengine::ops::cuda_toolkit().string();
  for (const SourceFile& header : headers)
    if (ppengine::ops::for_tensor_cores(source.name) || !ppengine::ops::for_tensor_cores(header.name))
      text += "\n" + header.name + "\n" + header.text;
  return text;
}

void compile_all(const fs::path& out, const std::vector<SourceFile>& sources, const std::vector<SourceFile>& headers) {
  fs::create_directories(out);
  std::unique_ptr<PtxCompiler> compiler;
  for (const SourceFile& source : sources) {
    char key[32];
    std::snprintf(key, sizeof key, "// key %016llx", static_cast<unsigned long long>(ppengine::hash_text(everything(source, headers))));
    const fs::path path = out / fs::path(source.name).replace_extension(".ptx");
    if (first_line(path) == key) continue;
    if (!compiler) compiler = std::make_unique<PtxCompiler>();
    write(path, std::string(key) + "\n" + compiler->compile(source, headers));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: compile_ptx OUT_DIR SOURCE.cpp ... HEADER.hpp ...\n");
    return 2;
  }
  if (ppengine::ops::cuda_toolkit().empty()) {
    std::puts("skipped: no CUDA toolkit is at hand (CUDA_HOME, CUDA_PATH, /usr/local/cuda), and the compiler wants its libdevice");
    return 77;
  }
  int status = 0;
  try {
    std::vector<SourceFile> sources, headers;
    for (int i = 2; i < argc; ++i) {
      const fs::path path = argv[i];
      (path.extension() == ".hpp" ? headers : sources).push_back({path.filename(), read(path)});
    }
    std::ranges::sort(headers, {}, &SourceFile::name);  // the hash must not depend on how they were named
    compile_all(argv[1], sources, headers);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "compile_ptx: %s\n", e.what());
    status = 1;
  }
  std::fflush(nullptr);
  std::_Exit(status);  // the compiler's tables are gone before its results are freed at exit
}
