// Any bytes as a safetensors file: only FileError may come out, and every byte of every tensor that is listed can be read.
#include <algorithm>
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/models/files/safetensors.hpp>

#include "memory_file.hpp"

using namespace ppengine::models;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ppengine::test::MemoryFile file;
  try {
    const SafetensorsFile opened(file.fill(data, size));
    std::uint64_t sum = 0;
    for (const StoredTensor& tensor : opened.tensors()) {
      for (std::size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<std::uint64_t>(tensor.data[i]);
      if (tensor.elements > size) continue;  // a type that is not known, or nothing of something
      std::vector<float> values(tensor.elements);
      std::vector<std::uint16_t> halves(tensor.elements);
      try {
        read_f32(tensor, 0, tensor.elements, values.data());
        read_bf16(tensor, 0, tensor.elements, halves.data());
      } catch (const ppengine::FileError&) {
      }
    }
    ppengine::test::keep(sum);
  } catch (const ppengine::FileError&) {
  }
  return 0;
}
