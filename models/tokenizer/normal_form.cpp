// Unicode normal forms: full decompositions from tables, Hangul by arithmetic, canonical order, composition.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <unordered_map>

#include <ppengine/models/tokenizer/detail/unicode.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {
namespace {

struct ClassRange {
  std::uint32_t first, last;
  std::uint8_t combining_class;
};
struct Composition {
  std::uint32_t first, second, composed;
};

constexpr ClassRange classes[] = {
#include <ppengine/models/tokenizer/tables/combining.inc>
};
constexpr Composition compositions[] = {
#include <ppengine/models/tokenizer/tables/compositions.inc>
};
// The code point, how many follow, and these.
constexpr std::uint32_t canonical[] = {
#include <ppengine/models/tokenizer/tables/canonical.inc>
};
constexpr std::uint32_t compatible[] = {
#include <ppengine/models/tokenizer/tables/compatible.inc>
};

using Decompositions = std::unordered_map<char32_t, const std::uint32_t*>;  // points at the count

Decompositions make_index(bool with_compatible) {
  Decompositions index;
  const auto add = [&](const std::uint32_t* at, const std::uint32_t* end) {
    for (; at != end; at += 2 + at[1]) index[at[0]] = at + 1;
  };
  add(std::begin(canonical), std::end(canonical));
  if (with_compatible) add(std::begin(compatible), std::end(compatible));
  return index;
}

int combining_class(char32_t point) {
  const auto* after = std::upper_bound(std::begin(classes), std::end(classes), static_cast<std::uint32_t>(point),
                                       [](std::uint32_t value, const ClassRange& range) { return value < range.first; });
  return after != std::begin(classes) && point <= std::prev(after)->last ? std::prev(after)->combining_class : 0;
}

constexpr char32_t hangul_base = 0xAC00, lead_base = 0x1100, vowel_base = 0x1161, tail_base = 0x11A7;
constexpr char32_t lead_count = 19, vowel_count = 21, tail_count = 28, hangul_count = lead_count * vowel_count * tail_count;

void decompose(std::u32string& out, char32_t point, const Decompositions& index) {
  if (point >= hangul_base && point < hangul_base + hangul_count) {
    const char32_t syllable = point - hangul_base;
    out.push_back(lead_base + syllable / (vowel_count * tail_count));
    out.push_back(vowel_base + syllable % (vowel_count * tail_count) / tail_count);
    if (syllable % tail_count != 0) out.push_back(tail_base + syllable % tail_count);
  } else if (const auto found = index.find(point); found != index.end()) {
    out.append(found->second + 1, found->second + 1 + *found->second);
  } else {
    out += point;
  }
}

void order_marks(std::u32string& text) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] < 0x300 || combining_class(text[i]) == 0) continue;
    std::size_t end = i + 1;
    while (end < text.size() && combining_class(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + static_cast<std::ptrdiff_t>(i), text.begin() + static_cast<std::ptrdiff_t>(end),
                     [](char32_t a, char32_t b) { return combining_class(a) < combining_class(b); });
    i = end;
  }
}

char32_t compose_pair(char32_t first, char32_t second) {
  if (first >= lead_base && first < lead_base + lead_count && second >= vowel_base && second < vowel_base + vowel_count)
    return hangul_base + ((first - lead_base) * vowel_count + (second - vowel_base)) * tail_count;
  if (first >= hangul_base && first < hangul_base + hangul_count && (first - hangul_base) % tail_count == 0 && second > tail_base &&
      second < tail_base + tail_count)
    return first + (second - tail_base);
  const auto* found =
      std::lower_bound(std::begin(compositions), std::end(compositions), std::pair<std::uint32_t, std::uint32_t>(first, second),
                       [](const Composition& entry, const auto& pair) { return std::pair(entry.first, entry.second) < pair; });
  const bool match = found != std::end(compositions) && found->first == first && found->second == second;
  return match ? found->composed : 0;
}

std::u32string compose(const std::u32string& text) {
  std::u32string out;
  std::size_t starter = std::u32string::npos;
  int last_class = 0;
  for (char32_t point : text) {
    const int its_class = combining_class(point);
    // A mark is blocked from the starter by one of its own class or higher in between, a starter by anything in between.
    const bool adjacent = starter != std::u32string::npos && starter + 1 == out.size();
    if (starter != std::u32string::npos && (adjacent || (last_class < its_class && last_class != 0))) {
      if (const char32_t composed = compose_pair(out[starter], point)) {
        out[starter] = composed;
        continue;
      }
    }
    if (its_class == 0) starter = out.size();
    last_class = its_class;
    out += point;
  }
  return out;
}

}  // namespace

std::string normalize(std::string_view text, NormalForm form) {
  static const Decompositions canonical_index = make_index(false), compatible_index = make_index(true);
  if (std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) >= 0x80; })) return std::string(text);
  const bool wide = form == NormalForm::nfkc || form == NormalForm::nfkd;
  std::u32string points;
  points.reserve(text.size());
  for (char32_t point : to_code_points(text)) {
    if (point < 0xA0)
      points += point;
    else
      decompose(points, point, wide ? compatible_index : canonical_index);
  }
  order_marks(points);
  return to_utf8(form == NormalForm::nfc || form == NormalForm::nfkc ? compose(points) : points);
}

}  // namespace ppengine::models::tokenizer
