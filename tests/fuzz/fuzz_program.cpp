// Any bytes as a program of torch.export: only FileError may come out, every byte of every tensor can be read, every size has a value or
// none.
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/exported.hpp>
#include <ppengine/models/import/stored.hpp>

#include "memory_file.hpp"

using namespace ppengine::models;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static ppengine::test::MemoryFile file;
  try {
    const auto program = ExportedProgram::read(file.fill(data, size));
    std::uint64_t sum = 0;
    for (const auto& [name, tensor] : program->tensors) {
      for (std::size_t i = 0; i < tensor.bytes; ++i) sum += static_cast<std::uint64_t>(tensor.data[i]);
      if (tensor.bytes <= 64 * size) sum += stored_floats(tensor).size();
    }
    ppengine::test::keep(sum);
    for (const auto& [name, value] : program->graph.values)
      for (const ExportedSize& one : value.sizes) try {
          std::map<std::string, std::int64_t> symbols;
          for (const std::string& symbol : symbols_of(one.expression)) symbols[symbol] = 3;
          value_of(one, symbols);
        } catch (const ppengine::FileError&) {
        }
  } catch (const ppengine::FileError&) {
  }
  return 0;
}
