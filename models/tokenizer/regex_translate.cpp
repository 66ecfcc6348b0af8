// Oniguruma's syntax as PCRE2's. Most patterns are the same in both; what differs is rewritten, what has no counterpart is
// refused by name: classes within classes, \h, \w and \b (other sets of code points), script names, {n,m}+ and {n}?.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/models/tokenizer/detail/regex.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {
namespace {

// What Oniguruma's \w matches (tables/regex_word.inc): letters, marks, decimal and letter numbers, connectors, and some more.
constexpr const char* word_set =
    R"(\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";

struct Alias {
  const char* name;  // lower case, without spaces, '_' and '-'
  const char* set;   // what stands inside a class
};
constexpr std::array<Alias, 43> properties{{{"letter", R"(\p{L})"},
                                            {"uppercaseletter", R"(\p{Lu})"},
                                            {"lowercaseletter", R"(\p{Ll})"},
                                            {"titlecaseletter", R"(\p{Lt})"},
                                            {"modifierletter", R"(\p{Lm})"},
                                            {"otherletter", R"(\p{Lo})"},
                                            {"mark", R"(\p{M})"},
                                            {"nonspacingmark", R"(\p{Mn})"},
                                            {"spacingmark", R"(\p{Mc})"},
                                            {"enclosingmark", R"(\p{Me})"},
                                            {"number", R"(\p{N})"},
                                            {"decimalnumber", R"(\p{Nd})"},
                                            {"letternumber", R"(\p{Nl})"},
                                            {"othernumber", R"(\p{No})"},
                                            {"punctuation", R"(\p{P})"},
                                            {"connectorpunctuation", R"(\p{Pc})"},
                                            {"dashpunctuation", R"(\p{Pd})"},
                                            {"openpunctuation", R"(\p{Ps})"},
                                            {"closepunctuation", R"(\p{Pe})"},
                                            {"initialpunctuation", R"(\p{Pi})"},
                                            {"finalpunctuation", R"(\p{Pf})"},
                                            {"otherpunctuation", R"(\p{Po})"},
                                            {"symbol", R"(\p{S})"},
                                            {"mathsymbol", R"(\p{Sm})"},
                                            {"currencysymbol", R"(\p{Sc})"},
                                            {"modifiersymbol", R"(\p{Sk})"},
                                            {"othersymbol", R"(\p{So})"},
                                            {"separator", R"(\p{Z})"},
                                            {"spaceseparator", R"(\p{Zs})"},
                                            {"lineseparator", R"(\p{Zl})"},
                                            {"paragraphseparator", R"(\p{Zp})"},
                                            {"other", R"(\p{C})"},
                                            {"control", R"(\p{Cc})"},
                                            {"cntrl", R"(\p{Cc})"},
                                            {"format", R"(\p{Cf})"},
                                            {"digit", R"(\p{Nd})"},
                                            {"space", R"(\s)"},
                                            {"whitespace", R"(\s)"},
                                            {"word", word_set},
                                            {"xdigit", "0-9A-Fa-f"},
                                            {"punct", R"(\p{P}$+<=>^`|~)"},
                                            {"ascii", R"(\x00-\x7f)"},
                                            {"any", R"(\x{0}-\x{10ffff})"}}};
constexpr std::array<const char*, 36> categories{"l",  "lu", "ll", "lt", "lm", "lo", "m",  "mn", "mc", "me", "n",  "nd",
                                                 "nl", "no", "p",  "pc", "pd", "ps", "pe", "pi", "pf", "po", "s",  "sm",
                                                 "sc", "sk", "so", "z",  "zs", "zl", "zp", "c",  "cc", "cf", "co", "cn"};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    sequence(0);
    if (at_ < in_.size()) refuse("an unmatched ')'");
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(fmt::format("the pattern '{}' uses {} at {}, which is not supported", in_, what, at_));
  }
  bool ends() const { return at_ >= in_.size(); }
  char peek(std::size_t ahead = 0) const { return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0'; }
  bool accept(std::string_view text) {
    if (in_.substr(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }

  // Alternatives up to the group's end.
  void sequence(int depth) {
    if (depth > 50) refuse("groups nested deeper than 50");
    bool first = true;
    while (!ends() && peek() != ')') {
      const std::size_t atom = out_.size();
      if (peek() == '(')
        group(depth, first);
      else if (peek() == '[')
        out_ += character_class(depth);
      else if (peek() == '\\')
        out_ += escape(false);
      else
        literal();
      quantifiers(atom);
      first = false;
    }
  }

  void literal() {  // a whole character, so that a quantifier after it binds to all of it
    const auto length = std::min(in_.size() - at_, static_cast<std::size_t>(code_point_at(in_, at_).length));
    out_ += in_.substr(at_, length);
    at_ += length;
  }

  void group(int depth, bool first) {
    if (peek(1) == '*') refuse("a callout '(*'");
    if (peek(1) == '?') {
      const char kind = peek(2);
      if (kind == '#') {  // a comment
        while (!ends() && peek() != ')') at_ += peek() == '\\' ? 2 : 1;
        if (!accept(")")) refuse("an open comment");
        return;
      }
      if (std::isalpha(static_cast<unsigned char>(kind)) || kind == '-') return options(depth, first);
      const bool known = kind == ':' || kind == '=' || kind == '!' || kind == '>' || kind == '<';
      if (!known) refuse(fmt::format("the group '(?{}'", kind));
      out_ += "(?";
      at_ += 2;
      out_ += in_[at_++];
      if (kind == '<') {
        if (peek() == '=' || peek() == '!') {
          out_ += in_[at_++];
        } else {
          while (!ends() && peek() != '>') out_ += in_[at_++];
        }
      }
    } else {
      out_ += '(';
      ++at_;
    }
    sequence(depth + 1);
    if (!accept(")")) refuse("a group without an end");
    out_ += ')';
  }

  // (?i) and (?i:...): Oniguruma's m is PCRE2's s. Without a colon it reaches to the group's end in another way when
  // something stands before it.
  void options(int depth, bool first) {
    at_ += 2;
    std::string letters;
    for (; !ends() && peek() != ':' && peek() != ')'; ++at_) {
      const char letter = peek();
      if (letter != 'i' && letter != 'm' && letter != 'x' && letter != '-') refuse(fmt::format("the option '{}'", letter));
      letters += letter == 'm' ? 's' : letter;
    }
    if (accept(")")) {
      if (!first) refuse("options in the middle of a group");
      out_ += "(?" + letters + ")";
      return;
    }
    if (!accept(":")) refuse("options without an end");
    out_ += "(?" + letters + ":";
    sequence(depth + 1);
    if (!accept(")")) refuse("a group without an end");
    out_ += ')';
  }

  void quantifiers(std::size_t atom) {
    while (peek() == '{') {
      std::size_t end = at_ + 1;
      while (end < in_.size() && (std::isdigit(static_cast<unsigned char>(in_[end])) || in_[end] == ',')) ++end;
      const std::string_view body = in_.substr(at_ + 1, end - at_ - 1);
      const auto commas = std::count(body.begin(), body.end(), ',');
      if (end >= in_.size() || in_[end] != '}' || body.empty() || body == "," || commas > 1) return;  // a literal brace
      at_ = end + 1;
      out_ += fmt::format("{{{}{}}}", body.front() == ',' ? "0" : "", body);
      const char next = peek();
      const bool wraps = next == '+' || next == '*' || (next == '?' && commas == 0);
      if (!wraps) continue;  // a following '?' makes it lazy, as in PCRE2
      out_.insert(atom, "(?:");
      out_ += ')';
      out_ += next;
      ++at_;
    }
  }

  // A class as "[...]" or "[^...]".
  std::string character_class(int depth) {
    ++at_;
    const bool negated = accept("^");
    return (negated ? "[^" : "[") + class_items(depth) + "]";
  }

  std::string class_items(int depth) {
    if (depth > 50) refuse("classes nested deeper than 50");
    std::string items;
    if (peek() == ']') {
      items += "\\]";
      ++at_;
    }
    while (!ends() && peek() != ']') {
      if (peek() == '[') {
        if (peek(1) == ':') {
          items += posix_class();
        } else {
          ++at_;
          if (peek() == '^') refuse("a negated class within a class");
          items += class_items(depth + 1);  // a union
        }
      } else if (peek() == '&' && peek(1) == '&') {
        refuse("an intersection of classes");
      } else if (peek() == '\\') {
        items += escape(true);
      } else {
        items += in_[at_++];
      }
    }
    if (!accept("]")) refuse("a class without an end");
    return items;
  }

  std::string posix_class() {
    const std::size_t end = in_.find(":]", at_);
    if (end == std::string_view::npos) refuse("a class name without an end");
    const std::string set = property_set(in_.substr(at_ + 2, end - at_ - 2), false);
    at_ = end + 2;
    return set;
  }

  // What a property is inside a class; `negated` asks for its complement.
  std::string property_set(std::string_view name, bool negated) {
    std::string key;
    for (char c : name)
      if (c != ' ' && c != '_' && c != '-') key += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (key.starts_with('^')) return property_set(std::string_view(key).substr(1), !negated);
    std::string set;
    for (const char* category : categories)
      if (key == category)
        set = fmt::format("\\p{{{}{}}}", static_cast<char>(std::toupper(static_cast<unsigned char>(key[0]))), key.substr(1));
    for (const Alias& alias : properties)
      if (key == alias.name) set = alias.set;
    if (set.empty()) {
      if (key.empty() || !std::all_of(key.begin(), key.end(), [](unsigned char c) { return std::isalpha(c); }))
        refuse(fmt::format("the property '{}'", name));
      for (const char* risky : {"alpha", "alnum", "upper", "lower", "graph", "print", "blank", "alphabetic", "uppercase", "lowercase"})
        if (key == risky) refuse(fmt::format("the property '{}'", name));
      set = fmt::format("\\p{{sc:{}}}", key);  // by script, not script extensions
    }
    if (!negated) return set;
    if (set == "\\s") return "\\S";
    if (!set.starts_with("\\p{") || set.find('}') + 1 != set.size()) refuse(fmt::format("the negated property '{}'", name));
    set[1] = 'P';
    return set;
  }

  std::string escape(bool in_class) {
    ++at_;
    if (ends()) refuse("a backslash at the end");
    const char c = in_[at_++];
    const auto as_set = [&](const std::string& set) { return in_class ? set : "[" + set + "]"; };
    const auto negated_set = [&](const std::string& set) {
      if (in_class) refuse(fmt::format("'\\{}' within a class", c));
      return "[^" + set + "]";
    };
    switch (c) {
      case 'p':
      case 'P': {
        if (!accept("{")) refuse("a property without braces");
        const std::size_t end = in_.find('}', at_);
        if (end == std::string_view::npos) refuse("a property without an end");
        const std::string_view name = in_.substr(at_, end - at_);
        const bool negated = c == 'P';
        const std::string set = property_set(name, in_class && negated);
        at_ = end + 1;
        return in_class ? set : (negated ? "[^" : "[") + set + "]";
      }
      case 'w':
        return as_set(word_set);
      case 'W':
        return negated_set(word_set);
      case 'h':
        return as_set("0-9A-Fa-f");
      case 'H':
        return negated_set("0-9A-Fa-f");
      case 'b':
        return in_class ? "\\x08" : fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", word_set);
      case 'B':
        if (in_class) refuse("'\\B' within a class");
        return fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", word_set);
      case 'v':
        return "\\x0b";
      case 'O':
        if (in_class) refuse("'\\O' within a class");
        return "(?s:.)";
      case 'u': {
        const std::string digits(in_.substr(at_, 4));
        if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), [](unsigned char d) { return std::isxdigit(d); }))
          refuse("'\\u' without four digits");
        at_ += 4;
        return fmt::format("\\x{{{}}}", digits);
      }
      case 'x': {
        const char first = peek();
        if (first != '{' && !(first >= '0' && first <= '7' && std::isxdigit(static_cast<unsigned char>(peek(1)))))
          refuse("'\\x' with a byte that is no character");
        return "\\x";
      }
      default:
        break;
    }
    constexpr std::string_view same = "sSdDnrtfae", same_outside = "RXAzZN";
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    const bool reference = !in_class && c >= '1' && c <= '9';
    if (letter && same.find(c) == same.npos && !reference && c != '0' && (in_class || same_outside.find(c) == same_outside.npos))
      refuse(fmt::format("'\\{}'", c));
    return {'\\', c};
  }

  std::string_view in_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string translate_pattern(std::string_view pattern) {
  if (pattern.empty() || pattern.size() > 100'000) throw ConfigError("a pattern that is empty or too long cannot be used");
  return Translator(pattern).run();
}

}  // namespace ppengine::models::tokenizer
