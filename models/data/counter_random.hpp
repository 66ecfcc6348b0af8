// Random numbers as a function of what they are for: no state, so no dependence on order, batching or ranks.
#pragma once

#include <cstdint>

namespace ppengine::models {

// The finalizer of splitmix64: every input bit changes about half of the output bits.
constexpr std::uint64_t mix_bits(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ull;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebull;
  return value ^ (value >> 31);
}

constexpr std::uint64_t random_bits(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return mix_bits(mix_bits(mix_bits(seed) ^ stream) ^ counter);
}

// In [0, 1), 53 bits.
constexpr double random_uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter) {
  return static_cast<double>(random_bits(seed, stream, counter) >> 11) * 0x1p-53;
}

// In [0, bound), without noticeable bias for bounds far below 2^64.
constexpr std::uint64_t random_below(std::uint64_t seed, std::uint64_t stream, std::uint64_t counter, std::uint64_t bound) {
  return static_cast<std::uint64_t>((static_cast<unsigned __int128>(random_bits(seed, stream, counter)) * bound) >> 64);
}

}  // namespace ppengine::models
