// Files of compiled kernels: a header with a key of all that the result depends on, then the program. The library writes them to the user's
// cache, and tools/compile_kernels.cpp, when the library is built, to lib/ppengine/kernels/.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include <ppengine/base/hash.hpp>

namespace ppengine::ops {

struct ProgramHeader {
  char magic[8];
  std::uint64_t key, content, bytes;
};
inline constexpr char program_magic[9] = "ppekern1";

inline std::string pack_program(std::uint64_t key, std::string_view program) {
  ProgramHeader header{{}, key, hash_text(program), program.size()};
  std::memcpy(header.magic, program_magic, sizeof header.magic);
  return std::string(reinterpret_cast<const char*>(&header), sizeof header).append(program);
}

// The program of a file whose key is this one and whose contents are as they were written; otherwise empty.
inline std::string unpack_program(std::string file, std::uint64_t key) {
  ProgramHeader header;
  if (file.size() < sizeof header) return {};
  std::memcpy(&header, file.data(), sizeof header);
  file.erase(0, sizeof header);
  const bool intact = std::memcmp(header.magic, program_magic, sizeof header.magic) == 0 && header.key == key &&
                      header.bytes == file.size() && header.content == hash_text(file);
  return intact ? file : std::string();
}

// The instructions that code compiled for this CPU may use.
inline std::string cpu_features() {
  std::string features;
#ifdef __x86_64__
#define PPENGINE_FEATURE(name) \
  if (__builtin_cpu_supports(name)) features.append(name " ")
  PPENGINE_FEATURE("sse4.2");
  PPENGINE_FEATURE("avx");
  PPENGINE_FEATURE("fma");
  PPENGINE_FEATURE("fma4");
  PPENGINE_FEATURE("bmi");
  PPENGINE_FEATURE("bmi2");
  PPENGINE_FEATURE("avx2");
  PPENGINE_FEATURE("gfni");
  PPENGINE_FEATURE("avx512f");
  PPENGINE_FEATURE("avx512dq");
  PPENGINE_FEATURE("avx512cd");
  PPENGINE_FEATURE("avx512bw");
  PPENGINE_FEATURE("avx512vl");
  PPENGINE_FEATURE("avx512ifma");
  PPENGINE_FEATURE("avx512vbmi");
  PPENGINE_FEATURE("avx512vnni");
  PPENGINE_FEATURE("avx512bf16");
#undef PPENGINE_FEATURE
#endif
  // The OpenCL driver can be told to compile for another CPU.
  const char* const other = std::getenv("CL_CONFIG_CPU_TARGET_ARCH");
  return other ? features.append(other) : features;
}

// Machine code for CPUs like this one. `text`: source, headers and options, as the library puts them together.
inline std::uint64_t native_program_key(std::string_view driver, std::string_view platform, std::string_view text) {
  return hash_text(cpu_features().append("\n").append(driver).append("\n").append(platform).append("\n").append(text));
}

// SPIR-V, for any device of its kind.
inline std::uint64_t spirv_program_key(std::string_view text) { return hash_text(std::string("spirv\n").append(text)); }

// One more header in the text that a key is made of.
inline void append_header(std::string& text, std::string_view name, std::string_view header) {
  text.append("\n").append(name).append("\n").append(header);
}

}  // namespace ppengine::ops
