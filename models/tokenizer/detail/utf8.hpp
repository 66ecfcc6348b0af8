// UTF-8: code points in and out, and text of unknown origin made valid.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ppengine::models::tokenizer {

// The code point at text[at] and its length in bytes; text must be valid there.
struct CodePoint {
  char32_t value;
  int length;
};
inline CodePoint code_point_at(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[at + i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

// The code point that ends before text[end]; end > 0.
inline CodePoint code_point_before(std::string_view text, std::size_t end) {
  std::size_t start = end - 1;
  while ((static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) --start;
  return code_point_at(text, start);
}

void append_utf8(std::string& text, char32_t value);
std::u32string to_code_points(std::string_view text);  // text must be valid
std::string to_utf8(std::u32string_view text);

bool is_valid_utf8(std::string_view text);
// Every maximal ill-formed part becomes one U+FFFD (the Unicode standard's advice; Rust's from_utf8_lossy, Python's
// errors="replace").
std::string make_valid_utf8(std::string_view text);

}  // namespace ppengine::models::tokenizer
