// SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104): how a rank proves that it knows the run's secret without sending it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ppengine::comm::net {

using Digest = std::array<std::uint8_t, 32>;

Digest sha256(std::string_view message);
// As 32 bytes of text, ready to be packed.
std::string hmac_sha256(std::string_view key, std::string_view message);
// In a time that does not depend on where they differ.
bool same_bytes(std::string_view a, std::string_view b);
// From the kernel's generator.
std::string random_bytes(std::size_t count);
std::string hex(std::string_view bytes);

}  // namespace ppengine::comm::net
