// Stored weights as f32 or bf16: plain loops over bits that the compiler vectorises.
#include <fmt/core.h>

#include <bit>
#include <cstring>

#include <ppengine/base/error.hpp>
#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {
namespace {

// Tensors may begin at any byte (the format promises alignment only of the header), so values are loaded by memcpy.
template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float f32_from_f16(std::uint16_t half) {
  // Exponent and mantissa shifted into place give the value scaled by 2^-112; subnormals come out right by the product.
  const std::uint32_t sign = std::uint32_t(half & 0x8000u) << 16;
  const std::uint32_t magnitude = std::uint32_t(half & 0x7fffu) << 13;
  const float scaled = std::bit_cast<float>(magnitude) * 0x1p112f;
  const std::uint32_t special = magnitude | 0x7f800000u;  // infinity or NaN
  const std::uint32_t bits = (half & 0x7c00u) == 0x7c00u ? special : std::bit_cast<std::uint32_t>(scaled);
  return std::bit_cast<float>(bits | sign);
}

std::uint16_t bf16_from_f32(std::uint32_t bits) {
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

const std::byte* start(const StoredTensor& tensor, std::size_t first, std::size_t count) {
  if (first > tensor.elements || count > tensor.elements - first)
    throw ConfigError(fmt::format("{}: elements {}..{} asked of tensor '{}', which has {}", tensor.file, first, first + count, tensor.name,
                                  tensor.elements));
  const std::size_t size = stored_type_size(tensor.type);
  return tensor.data + first * size;
}

[[noreturn]] void refuse_type(const StoredTensor& tensor) {
  throw FileError(fmt::format("{}: tensor '{}' has type {}; weights must be F32, F16 or BF16", tensor.file, tensor.name, tensor.type_name));
}

}  // namespace

void read_f32(const StoredTensor& tensor, std::size_t first, std::size_t count, float* __restrict destination) {
  const std::byte* __restrict from = start(tensor, first, count);
  switch (tensor.type) {
    case StoredType::f32:
      if (count) std::memcpy(destination, from, count * 4);
      return;
    case StoredType::f16:
      for (std::size_t i = 0; i < count; ++i) destination[i] = f32_from_f16(load<std::uint16_t>(from + 2 * i));
      return;
    case StoredType::bf16:
      for (std::size_t i = 0; i < count; ++i) destination[i] = std::bit_cast<float>(std::uint32_t(load<std::uint16_t>(from + 2 * i)) << 16);
      return;
    default:
      refuse_type(tensor);
  }
}

void read_bf16(const StoredTensor& tensor, std::size_t first, std::size_t count, std::uint16_t* __restrict destination) {
  const std::byte* __restrict from = start(tensor, first, count);
  switch (tensor.type) {
    case StoredType::f32:
      for (std::size_t i = 0; i < count; ++i) destination[i] = bf16_from_f32(load<std::uint32_t>(from + 4 * i));
      return;
    case StoredType::f16:
      for (std::size_t i = 0; i < count; ++i)
        destination[i] = bf16_from_f32(std::bit_cast<std::uint32_t>(f32_from_f16(load<std::uint16_t>(from + 2 * i))));
      return;
    case StoredType::bf16:
      if (count) std::memcpy(destination, from, count * 2);
      return;
    default:
      refuse_type(tensor);
  }
}

}  // namespace ppengine::models
