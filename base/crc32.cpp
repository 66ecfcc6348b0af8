// CRC-32, eight bytes at a time by eight tables ("slicing by 8").
#include <ppengine/base/crc32.hpp>

#include <array>
#include <bit>
#include <cstring>

namespace ppengine {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr auto make_tables() {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0xedb88320u : 0u);
    tables[0][byte] = value;
  }
  for (std::size_t byte = 0; byte < 256; ++byte)
    for (std::size_t k = 1; k < 8; ++k) tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 255];
  return tables;
}
constexpr auto tables = make_tables();

}  // namespace

std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before) {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~before;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    std::uint32_t low, high;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= crc;
    crc = tables[7][low & 255] ^ tables[6][(low >> 8) & 255] ^ tables[5][(low >> 16) & 255] ^ tables[4][low >> 24] ^ tables[3][high & 255] ^
          tables[2][(high >> 8) & 255] ^ tables[1][(high >> 16) & 255] ^ tables[0][high >> 24];
  }
  for (; bytes > 0; --bytes, ++at) crc = tables[0][(crc ^ *at) & 255] ^ (crc >> 8);
  return ~crc;
}

}  // namespace ppengine
