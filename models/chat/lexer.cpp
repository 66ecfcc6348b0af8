// Tokens of a template.
#include <ppengine/models/chat/lexer.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <ppengine/models/chat/chat_template.hpp>

namespace ppengine::models::chat {
namespace {

constexpr std::string_view spaces = " \t\n\r\f\v";
bool name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool digit(char c) { return c >= '0' && c <= '9'; }

void append_utf8(std::string& out, std::uint32_t c) {
  if (c >= 0xd800 && c < 0xe000) c = 0xfffd;
  const auto byte = [&](std::uint32_t value) { out += static_cast<char>(value); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) return byte(0xc0 | c >> 6), byte(0x80 | (c & 0x3f));
  if (c < 0x10000) return byte(0xe0 | c >> 12), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f));
  byte(0xf0 | (c >> 18 & 7)), byte(0x80 | (c >> 12 & 0x3f)), byte(0x80 | (c >> 6 & 0x3f)), byte(0x80 | (c & 0x3f));
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& name) : name_(name) {
    for (std::size_t i = 0; i < text.size(); ++i) {  // as Jinja: one kind of newline, and the last one does not count
      if (text[i] == '\r') {
        text_ += '\n';
        if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
      } else {
        text_ += text[i];
      }
    }
    if (text_.ends_with('\n')) text_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < text_.size()) {
      const std::size_t open = find_tag();
      std::string text = text_.substr(at_, open - at_);
      if (open == text_.size()) {
        push_text(std::move(text));
        at_ = open;
        break;
      }
      const char kind = text_[open + 1];
      const char control = open + 2 < text_.size() ? text_[open + 2] : '\0';
      const std::size_t before = text.size();
      if (control == '-') {
        text.erase(text.find_last_not_of(spaces) + 1);
      } else if (kind != '{' && control != '+') {             // lstrip_blocks: a line that has nothing else before the tag
        const std::size_t line_begin = text.rfind('\n') + 1;  // npos + 1 is 0
        if ((line_begin > 0 || line_starting_) && text.find_first_not_of(" \t", line_begin) == text.npos) text.erase(line_begin);
      }
      const int newlines = static_cast<int>(
          std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_), text_.begin() + static_cast<std::ptrdiff_t>(at_ + before), '\n'));
      push_text(std::move(text));
      line_ += newlines;
      at_ = open + 2 + (control == '-' || (control == '+' && kind != '{') ? 1 : 0);
      if (kind == '#')
        comment();
      else if (kind == '%' && raw())
        continue;
      else
        tag(kind == '%');
    }
    push(Token::Kind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw TemplateError(fmt::format("{}:{}: {}", name_, line_, what)); }

  std::size_t find_tag() const {
    for (std::size_t i = text_.find('{', at_); i != std::string::npos && i + 1 < text_.size(); i = text_.find('{', i + 1))
      if (text_[i + 1] == '{' || text_[i + 1] == '%' || text_[i + 1] == '#') return i;
    return text_.size();
  }

  void push(Token::Kind kind, std::string text = "", Value value = {}) {
    tokens_.push_back({kind, line_, std::move(text), std::move(value)});
  }
  void push_text(std::string text) {
    if (!text.empty()) push(Token::Kind::text, std::move(text));
  }

  // Behind a tag: '-' takes all whitespace, trim_blocks one newline.
  void after_tag(char control, bool trims) {
    const std::size_t begin = at_;
    if (control == '-')
      at_ = std::min(text_.find_first_not_of(spaces, at_), text_.size());
    else if (trims && control != '+' && at_ < text_.size() && text_[at_] == '\n')
      ++at_;
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<std::ptrdiff_t>(begin), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n'));
    line_starting_ = at_ > begin && text_[at_ - 1] == '\n';
  }

  void comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string::npos) refuse("a comment is not closed with #}");
    const char control = end > at_ ? text_[end - 1] : '\0';
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_), text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end + 2;
    after_tag(control, true);
  }

  // {% raw %} ... {% endraw %}; false where the tag is another one.
  bool raw() {
    std::size_t at = std::min(text_.find_first_not_of(spaces, at_), text_.size());
    if (text_.compare(at, 3, "raw") != 0) return false;
    at = std::min(text_.find_first_not_of(spaces, at + 3), text_.size());
    char control = '\0';
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) control = text_[at++];
    if (text_.compare(at, 2, "%}") != 0) return false;
    at_ = at + 2;
    after_tag(control, true);
    for (std::size_t open = text_.find("{%", at_); open != std::string::npos; open = text_.find("{%", open + 2)) {
      std::size_t inner = open + 2;
      const bool strips = inner < text_.size() && text_[inner] == '-';
      if (strips) ++inner;
      inner = std::min(text_.find_first_not_of(spaces, inner), text_.size());
      if (text_.compare(inner, 6, "endraw") != 0) continue;
      inner = std::min(text_.find_first_not_of(spaces, inner + 6), text_.size());
      control = '\0';
      if (inner < text_.size() && (text_[inner] == '-' || text_[inner] == '+')) control = text_[inner++];
      if (text_.compare(inner, 2, "%}") != 0) continue;
      std::string text = text_.substr(at_, open - at_);
      line_ += static_cast<int>(std::ranges::count(text, '\n'));
      if (strips)
        text.erase(text.find_last_not_of(spaces) + 1);
      else if (const std::size_t begin = text.rfind('\n') + 1; begin > 0 && text.find_first_not_of(" \t", begin) == text.npos)
        text.erase(begin);
      push_text(std::move(text));
      at_ = inner + 2;
      after_tag(control, true);
      return true;
    }
    refuse("{% raw %} is not closed with {% endraw %}");
  }

  void tag(bool block) {
    push(block ? Token::Kind::block_begin : Token::Kind::variable_begin);
    const std::string_view close = block ? "%}" : "}}";
    std::string open_brackets;  // a bracket that is open: the tag cannot end
    for (;;) {
      while (at_ < text_.size() && spaces.find(text_[at_]) != spaces.npos) line_ += text_[at_++] == '\n';
      if (at_ >= text_.size()) refuse(fmt::format("a tag is not closed with {}", close));
      if (open_brackets.empty()) {
        const bool control = text_[at_] == '-' || (block && text_[at_] == '+');
        if (text_.compare(at_ + (control ? 1 : 0), 2, close) == 0) {
          const char how = control ? text_[at_] : '\0';
          push(block ? Token::Kind::block_end : Token::Kind::variable_end);
          at_ += control ? 3 : 2;
          return after_tag(how, block);
        }
      }
      word(open_brackets);
    }
  }

  void word(std::string& open_brackets) {
    const char c = text_[at_];
    std::size_t end = at_ + 1;
    if (name_start(c)) {
      while (end < text_.size() && (name_start(text_[end]) || digit(text_[end]))) ++end;
      push(Token::Kind::name, text_.substr(at_, end - at_));
      at_ = end;
    } else if (digit(c)) {
      number();
    } else if (c == '\'' || c == '"') {
      quoted();
    } else {
      static constexpr std::array<std::string_view, 6> doubles{"**", "//", "==", "!=", "<=", ">="};
      std::string symbol(1, c);
      for (std::string_view two : doubles)
        if (text_.compare(at_, 2, two) == 0) symbol = two;
      if (std::string_view("()[]{}.,:|=+-*/%~<>").find(c) == std::string_view::npos && symbol.size() == 1)
        refuse(fmt::format("unexpected character '{}'", c >= 32 && c < 127 ? std::string(1, c) : std::string("?")));
      if (c == '(' || c == '[' || c == '{') open_brackets += c;
      if (c == ')' || c == ']' || c == '}') {
        const char open = c == ')' ? '(' : c == ']' ? '[' : '{';
        if (open_brackets.empty() || open_brackets.back() != open) refuse(fmt::format("unexpected '{}'", c));
        open_brackets.pop_back();
      }
      at_ += symbol.size();
      push(Token::Kind::symbol, std::move(symbol));
    }
  }

  void number() {
    std::string text;
    bool is_float = false;
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      const bool dot = c == '.' && !is_float && at_ + 1 < text_.size() && digit(text_[at_ + 1]);
      const bool exponent =
          (c == 'e' || c == 'E') && at_ + 1 < text_.size() &&
          (digit(text_[at_ + 1]) || ((text_[at_ + 1] == '-' || text_[at_ + 1] == '+') && at_ + 2 < text_.size() && digit(text_[at_ + 2])));
      if (dot || exponent)
        is_float = true;
      else if (c == '_')
        continue;
      else if (!digit(c))
        break;
      text += c;
      if (exponent) text += text_[++at_];
    }
    if (is_float) {
      double value = 0;
      const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
      if (result.ec != std::errc()) refuse(fmt::format("'{}' is not a number", text));
      return push(Token::Kind::number, text, value);
    }
    std::int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) refuse(fmt::format("{} is too large", text));
    push(Token::Kind::number, text, value);
  }

  void quoted() {
    const char quote = text_[at_++];
    std::string out;
    const int line = line_;
    for (;; ++at_) {
      if (at_ >= text_.size()) refuse("a string is not closed");
      char c = text_[at_];
      if (c == quote) break;
      line_ += c == '\n';
      if (c != '\\' || at_ + 1 >= text_.size()) {
        out += c;
        continue;
      }
      c = text_[++at_];
      constexpr std::string_view from = "nrtabfv0\\'\"", to("\n\r\t\a\b\f\v\0\\'\"", 11);
      const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
      std::uint32_t point = 0;
      const char* first = text_.data() + at_ + 1;
      if (const std::size_t found = from.find(c); found != from.npos) {
        out += to[found];
      } else if (digits > 0 && at_ + digits < text_.size() && std::from_chars(first, first + digits, point, 16).ptr == first + digits &&
                 point <= 0x10ffff) {
        append_utf8(out, point);
        at_ += digits;
      } else if (c != '\n') {
        out += {'\\', c};
      }
    }
    ++at_;
    tokens_.push_back({Token::Kind::string, line, std::move(out), {}});
  }

  std::string name_, text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize(std::string_view text, const std::string& name) { return Lexer(text, name).run(); }

}  // namespace ppengine::models::chat
