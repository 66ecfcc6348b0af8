// Tensors of files as numbers on the host.
#include <ppengine/models/import/stored.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include <ppengine/base/error.hpp>

namespace ppengine::models {
namespace {

template <class From, class To, class Convert>
void convert(const StoredTensor& tensor, std::size_t first, std::size_t count, To* to, Convert&& one) {
  for (std::size_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, tensor.data + (first + i) * sizeof value, sizeof value);
    to[i] = one(value);
  }
}

template <class To, class Convert>
bool convert_integers(const StoredTensor& tensor, std::size_t first, std::size_t count, To* to, Convert&& one) {
  switch (tensor.type) {
    case StoredType::i64:
      convert<std::int64_t>(tensor, first, count, to, one);
      return true;
    case StoredType::i32:
      convert<std::int32_t>(tensor, first, count, to, one);
      return true;
    case StoredType::i16:
      convert<std::int16_t>(tensor, first, count, to, one);
      return true;
    case StoredType::i8:
      convert<std::int8_t>(tensor, first, count, to, one);
      return true;
    case StoredType::u32:
      convert<std::uint32_t>(tensor, first, count, to, one);
      return true;
    case StoredType::u16:
      convert<std::uint16_t>(tensor, first, count, to, one);
      return true;
    case StoredType::u8:
    case StoredType::boolean:
      convert<std::uint8_t>(tensor, first, count, to, one);
      return true;
    default:
      return false;
  }
}

}  // namespace

void read_floats(const StoredTensor& tensor, std::size_t first, std::size_t count, float* to) {
  if (tensor.type == StoredType::f64) return convert<double>(tensor, first, count, to, [](double x) { return static_cast<float>(x); });
  if (convert_integers(tensor, first, count, to, [](auto x) { return static_cast<float>(x); })) return;
  read_f32(tensor, first, count, to);
}

void read_integers(const StoredTensor& tensor, std::size_t first, std::size_t count, std::int32_t* to) {
  const auto narrow = [](auto x) {
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(static_cast<std::int64_t>(x), INT32_MIN, INT32_MAX));
  };
  if (convert_integers(tensor, first, count, to, narrow)) return;
  std::vector<float> values(count);
  read_floats(tensor, first, count, values.data());
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] != std::floor(values[i]) || std::abs(values[i]) >= 2147483648.0f)
      throw FileError(fmt::format("{}: tensor '{}' holds {} where integers are expected", tensor.file, tensor.name, values[i]));
    to[i] = static_cast<std::int32_t>(values[i]);
  }
}

std::vector<float> stored_floats(const StoredTensor& tensor) {
  std::vector<float> values(tensor.elements);
  read_floats(tensor, 0, tensor.elements, values.data());
  return values;
}

std::vector<std::int32_t> stored_integers(const StoredTensor& tensor) {
  std::vector<std::int32_t> values(tensor.elements);
  read_integers(tensor, 0, tensor.elements, values.data());
  return values;
}

}  // namespace ppengine::models
