// What libsycl-jit needs to compile for NVIDIA devices.
#include <ppengine/ops/device/nvidia_toolchain.hpp>

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>

namespace ppengine::ops {
namespace {
namespace fs = std::filesystem;

constexpr std::string_view embedded = "/sycl-jit-toolchain/lib/clang/23/lib/nvptx64-nvidia-cuda/libspirv.l64.signed_char.bc";

// An embedded file in the library's table.
struct Row {
  const char* name;
  std::uint64_t name_length;
  const char* bytes;
  std::uint64_t size;
};

template <class Visit>
void for_readable(const dl_phdr_info& info, Visit visit) {
  for (const auto& part : std::span(info.dlpi_phdr, info.dlpi_phnum))
    if (part.p_type == PT_LOAD && (part.p_flags & PF_R)) visit(reinterpret_cast<const char*>(info.dlpi_addr + part.p_vaddr), part.p_filesz);
}

int find_row(dl_phdr_info* info, std::size_t, void* result) {
  if (!info->dlpi_name || !std::strstr(info->dlpi_name, "libsycl-jit.so")) return 0;
  const char* name = nullptr;
  for_readable(*info, [&](const char* begin, std::size_t size) {
    if (!name) name = static_cast<const char*>(memmem(begin, size, embedded.data(), embedded.size() + 1));
  });
  if (!name) return 1;
  for_readable(*info, [&](const char* begin, std::size_t size) {
    for (std::size_t at = 0; at + sizeof(Row) <= size; at += sizeof(void*)) {
      Row row;
      std::memcpy(&row, begin + at, sizeof row);
      if (row.name == name && row.name_length == embedded.size()) *static_cast<std::optional<Row>*>(result) = row;
    }
  });
  return 1;
}

// Under a name of its own until it is whole: other processes may write it at the same time.
void write_whole(const fs::path& path, const Row& row) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  const fs::path partial = path.string() + "." + std::to_string(getpid());
  std::ofstream file(partial, std::ios::binary);
  if (!file.write(row.bytes, static_cast<std::streamsize>(row.size)).flush())
    throw std::runtime_error("the compiler's built-in functions cannot be written to " + partial.string());
  fs::rename(partial, path);
}

}  // namespace

fs::path cuda_toolkit() {
  for (const char* folder : {static_cast<const char*>(std::getenv("CUDA_HOME")), static_cast<const char*>(std::getenv("CUDA_PATH")), "/usr/local/cuda"})
    if (folder && fs::exists(fs::path(folder) / "nvvm/libdevice/libdevice.10.bc")) return folder;
  return {};
}

std::vector<std::string> nvidia_compile_options(const fs::path& folder) {
  const fs::path toolkit = cuda_toolkit();
  if (toolkit.empty())
    throw std::runtime_error(
        "kernels for NVIDIA devices need the libdevice of a CUDA toolkit, and neither CUDA_HOME, CUDA_PATH nor /usr/local/cuda has "
        "nvvm/libdevice/libdevice.10.bc: install one (Debian: nvidia-cuda-toolkit; PyPI: nvidia-cuda-nvcc) and set CUDA_HOME");
  if (!dlopen("libsycl-jit.so", RTLD_NOW)) throw std::runtime_error(dlerror());
  std::optional<Row> row;
  dl_iterate_phdr(find_row, &row);
  // A compiler of another release may find its own: then nothing is said about them.
  if (!row) return {"--cuda-path=" + toolkit.string()};
  const fs::path builtins = folder / ("libspirv-nvptx-" + std::to_string(row->size) + ".bc");
  std::error_code failed;
  if (fs::file_size(builtins, failed) != row->size || failed) write_whole(builtins, *row);
  return {"--cuda-path=" + toolkit.string(), "-fsycl-libspirv-path=" + builtins.string()};
}

}  // namespace ppengine::ops
