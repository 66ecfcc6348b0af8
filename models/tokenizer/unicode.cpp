// Properties of code points: binary search in tables made from Hugging Face's tokenizers.
#include <ppengine/models/tokenizer/detail/unicode.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <span>

#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {
namespace {

struct Range {
  std::uint32_t first, last;
};
struct Lower {
  std::uint32_t point;
  std::array<std::uint32_t, 3> to;
};

constexpr Range word_ranges[] = {
#include <ppengine/models/tokenizer/tables/word.inc>
};
constexpr Range numeric_ranges[] = {
#include <ppengine/models/tokenizer/tables/numeric.inc>
};
constexpr Range punctuation_ranges[] = {
#include <ppengine/models/tokenizer/tables/punctuation.inc>
};
constexpr Range mark_ranges[] = {
#include <ppengine/models/tokenizer/tables/mark.inc>
};
constexpr Lower lower_case[] = {
#include <ppengine/models/tokenizer/tables/lowercase.inc>
};

bool contains(std::span<const Range> ranges, char32_t point) {
  const auto after = std::ranges::upper_bound(ranges, static_cast<std::uint32_t>(point), {}, &Range::first);
  return after != ranges.begin() && point <= std::prev(after)->last;
}

}  // namespace

bool is_whitespace(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
bool is_word(char32_t point) { return contains(word_ranges, point); }
bool is_numeric(char32_t point) { return contains(numeric_ranges, point); }
bool is_punctuation(char32_t point) { return contains(punctuation_ranges, point); }
bool is_mark(char32_t point) { return contains(mark_ranges, point); }

std::string lowercase(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const auto* found = std::lower_bound(std::begin(lower_case), std::end(lower_case), static_cast<std::uint32_t>(c.value),
                                         [](const Lower& entry, std::uint32_t value) { return entry.point < value; });
    if (found != std::end(lower_case) && found->point == c.value) {
      for (std::uint32_t lower : found->to)
        if (lower != 0) append_utf8(out, lower);
    } else {
      out += text.substr(at, static_cast<std::size_t>(c.length));
    }
    at += static_cast<std::size_t>(c.length);
  }
  return out;
}

}  // namespace ppengine::models::tokenizer
