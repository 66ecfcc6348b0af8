// CRC-32 as in zlib, gzip and PNG: zlib.crc32(tensor.numpy().tobytes()) gives the same number.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ppengine {

// Of `bytes` bytes behind what gave `before` (0: the beginning).
std::uint32_t crc32(const void* data, std::size_t bytes, std::uint32_t before = 0);

}  // namespace ppengine
