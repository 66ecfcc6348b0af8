// Any bytes as a .npy file: only FileError may come out, and every element that is promised is there.
#include <ppengine/base/error.hpp>
#include <ppengine/models/files/npy.hpp>

#include "memory_file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ppengine::test::MemoryFile file;
  try {
    const ppengine::models::NpyFile opened(file.fill(data, size));
    std::int64_t all = 0;
    for (std::uint64_t i = 0; i < opened.elements(); ++i) all ^= opened.at(i);
    ppengine::test::keep(all);
  } catch (const ppengine::FileError&) {
  }
  return 0;
}
