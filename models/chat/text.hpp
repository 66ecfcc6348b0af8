// Letters of templates' strings: upper and lower case of ASCII; others stay as they are.
#pragma once

#include <string>

namespace ppengine::models::chat {

inline bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
inline char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
inline char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }

inline std::string to_upper(std::string text) {
  for (char& c : text) c = upper(c);
  return text;
}

inline std::string to_lower(std::string text) {
  for (char& c : text) c = lower(c);
  return text;
}

inline std::string capitalized(std::string text) {
  text = to_lower(std::move(text));
  if (!text.empty()) text[0] = upper(text[0]);
  return text;
}

inline std::string titled(std::string text) {
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = i > 0 && is_letter(text[i - 1]) ? lower(text[i]) : upper(text[i]);
  return text;
}

}  // namespace ppengine::models::chat
