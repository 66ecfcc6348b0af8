// Elements of a buffer as numbers.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "case.hpp"

namespace ppengine::test {

inline double half_value(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

inline std::size_t element_bytes(Element element) {
  return element == Element::f32 || element == Element::i32 ? 4 : element == Element::bf16 || element == Element::f16 ? 2 : 1;
}

// NaN where written(byte) is false for any of an element's bytes.
template <class Written>
std::vector<double> values_of(Element element, const std::uint8_t* bytes, std::size_t size, Written written) {
  const std::size_t each = element_bytes(element);
  std::vector<double> values(size / each, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < values.size(); ++i) {
    bool whole = true;
    for (std::size_t k = 0; k < each; ++k) whole = whole && written(i * each + k);
    if (!whole) continue;
    std::uint32_t bits = 0;
    std::memcpy(&bits, bytes + i * each, each);
    if (element == Element::bf16) bits <<= 16;
    float value;
    std::memcpy(&value, &bits, 4);
    switch (element) {
      case Element::f32:
      case Element::bf16:
        values[i] = value;
        break;
      case Element::f16:
        values[i] = half_value(static_cast<std::uint16_t>(bits));
        break;
      case Element::i32:
        values[i] = static_cast<std::int32_t>(bits);
        break;
      default:
        values[i] = static_cast<std::int8_t>(bits);
        break;
    }
  }
  return values;
}

}  // namespace ppengine::test
