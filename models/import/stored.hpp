// Tensors of files as numbers on the host.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {

std::vector<float> stored_floats(const StoredTensor& tensor);           // of any type
std::vector<std::int32_t> stored_integers(const StoredTensor& tensor);  // what does not fit into 32 bits is the nearest that does
inline std::vector<std::int32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::int32_t> bits;
  bits.reserve(values.size());
  for (float one : values) bits.push_back(std::bit_cast<std::int32_t>(one));
  return bits;
}
// Elements [first, first + count) converted, for data that is read in parts.
void read_floats(const StoredTensor& tensor, std::size_t first, std::size_t count, float* to);
void read_integers(const StoredTensor& tensor, std::size_t first, std::size_t count, std::int32_t* to);

}  // namespace ppengine::models
