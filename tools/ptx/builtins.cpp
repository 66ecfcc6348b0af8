// The built-in functions for NVIDIA that libsycl-jit (2026.2) carries inside but looks for in the file system: it opens
// /lib/clang/23/lib/nvptx64-nvidia-cuda/libspirv... without the prefix under which its embedded files lie. This program's own open64(),
// which the library calls in place of the C library's, answers for that one path with a file in memory.
#include "builtins.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace {

constexpr std::string_view wanted = "/lib/clang/23/lib/nvptx64-nvidia-cuda/libspirv.l64.signed_char.bc";
constexpr std::string_view embedded = "/sycl-jit-toolchain/lib/clang/23/lib/nvptx64-nvidia-cuda/libspirv.l64.signed_char.bc";
int in_memory = -1;

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

}  // namespace

namespace ppengine::tools {

void serve_builtins() {
  if (in_memory >= 0) return;
  std::optional<Row> row;
  dl_iterate_phdr(find_row, &row);
  if (!row) throw std::runtime_error("this libsycl-jit.so carries no built-in functions for NVIDIA");
  in_memory = memfd_create("libspirv", 0);
  if (in_memory < 0 || write(in_memory, row->bytes, row->size) != static_cast<ssize_t>(row->size))
    throw std::runtime_error(std::string("no memory for the built-in functions: ") + std::strerror(errno));
}

}  // namespace ppengine::tools

extern "C" [[gnu::visibility("default")]] int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  if (in_memory >= 0 && path == wanted) return openat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(in_memory)).c_str(), flags);
  return openat(AT_FDCWD, path, flags, mode);
}
