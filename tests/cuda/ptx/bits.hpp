// Values of registers as raw bits: every register is 64 bits wide, narrower values have zeros above.
#pragma once

#include <cstdint>
#include <cstring>

namespace ppengine::ptx {

template <class T>
T from_bits(std::uint64_t bits) {
  T value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
std::uint64_t to_bits(T value) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}

}  // namespace ppengine::ptx
