// GPT-2's alphabet: every byte as a printable character, so that any text is a string of characters of a vocabulary.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {

class ByteAlphabet {
 public:
  constexpr ByteAlphabet() {
    char32_t extra = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE);
      to_[static_cast<std::size_t>(byte)] = printable ? static_cast<char32_t>(byte) : extra++;
    }
    for (auto& byte : from_) byte = -1;
    for (int byte = 0; byte < 256; ++byte) from_[to_[static_cast<std::size_t>(byte)]] = static_cast<std::int16_t>(byte);
  }

  std::string encode(std::string_view bytes) const {
    std::string text;
    text.reserve(bytes.size() * 2);
    for (char byte : bytes) append_utf8(text, to_[static_cast<unsigned char>(byte)]);
    return text;
  }

  // Empty where a character of the text is none of the alphabet's.
  std::optional<std::string> decode(std::string_view text) const {
    std::string bytes;
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint c = code_point_at(text, at);
      if (c.value >= from_.size() || from_[c.value] < 0) return std::nullopt;
      bytes += static_cast<char>(static_cast<unsigned char>(from_[c.value]));
      at += static_cast<std::size_t>(c.length);
    }
    return bytes;
  }

 private:
  std::array<char32_t, 256> to_{};
  std::array<std::int16_t, 324> from_{};  // 256 printable ones and 68 that stand for the others
};

inline constexpr ByteAlphabet byte_alphabet;

}  // namespace ppengine::models::tokenizer
