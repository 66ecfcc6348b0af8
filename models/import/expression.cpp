// Sizes as sympy writes them: Mul(Integer(2), Symbol('s77', positive=True, integer=True)).
#include <fmt/core.h>

#include <algorithm>
#include <cctype>

#include <ppengine/base/error.hpp>
#include <ppengine/models/import/exported.hpp>

namespace ppengine::models {
namespace {

class SizeParser {
 public:
  SizeParser(const std::string& text, const std::map<std::string, std::int64_t>& symbols) : text_(text), symbols_(symbols) {}
  std::int64_t all() {
    const std::int64_t value = expression(0);
    if (at_ != text_.size()) fail();
    return value;
  }

 private:
  [[noreturn]] void fail() const { throw FileError(fmt::format("the size '{}' is not understood", text_)); }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool eat(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!eat(c)) fail();
  }
  static std::int64_t floor_divide(std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }
  std::int64_t checked(__int128 value) const {
    if (value > INT64_MAX / 4 || value < INT64_MIN / 4) fail();
    return static_cast<std::int64_t>(value);
  }

  std::int64_t expression(int depth) {
    if (depth > 64) fail();
    skip();
    if (at_ < text_.size() && (text_[at_] == '-' || std::isdigit(static_cast<unsigned char>(text_[at_])))) return integer();
    std::string name;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' || text_[at_] == '.'))
      name += text_[at_++];
    if (!eat('(')) return symbol(name);
    if (name == "Symbol") {
      expect('\'');
      std::string id;
      while (at_ < text_.size() && text_[at_] != '\'') id += text_[at_++];
      expect('\'');
      const std::size_t end = text_.find(')', at_);
      if (end == std::string::npos) fail();
      at_ = end + 1;
      return symbol(id);
    }
    std::vector<std::int64_t> values;
    if (!eat(')')) {
      do values.push_back(expression(depth + 1));
      while (eat(','));
      expect(')');
    }
    return apply(name.substr(name.rfind('.') == std::string::npos ? 0 : name.rfind('.') + 1), values);
  }

  std::int64_t integer() {
    const std::size_t begin = at_;
    if (text_[at_] == '-') ++at_;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) ++at_;
    if (at_ - begin > 18 || (at_ - begin == 1 && text_[begin] == '-')) fail();
    return std::stoll(text_.substr(begin, at_ - begin));
  }
  std::int64_t symbol(const std::string& id) const {
    const auto found = symbols_.find(id);
    if (found == symbols_.end()) fail();
    return found->second;
  }

  std::int64_t apply(const std::string& name, const std::vector<std::int64_t>& v) const {
    if (name == "Integer" && v.size() == 1) return v[0];
    if (name == "Add" || name == "Mul") {
      __int128 result = name == "Add" ? 0 : 1;
      for (std::int64_t one : v) result = checked(name == "Add" ? result + one : result * one);
      return static_cast<std::int64_t>(result);
    }
    if (v.size() == 2 && v[1] != 0) {
      if (name == "FloorDiv" || name == "CleanDiv") return floor_divide(v[0], v[1]);
      if (name == "Mod" || name == "PythonMod") return v[0] - floor_divide(v[0], v[1]) * v[1];
    }
    if (!v.empty() && name == "Max") return *std::ranges::max_element(v);
    if (!v.empty() && name == "Min") return *std::ranges::min_element(v);
    if (v.size() == 2 && (name == "Pow" || name == "PowByNatural") && v[1] >= 0 && v[1] < 8) {
      std::int64_t result = 1;
      for (std::int64_t i = 0; i < v[1]; ++i) result = checked(static_cast<__int128>(result) * v[0]);
      return result;
    }
    fail();
  }

  const std::string& text_;
  const std::map<std::string, std::int64_t>& symbols_;
  std::size_t at_ = 0;
};

}  // namespace

std::int64_t value_of(const ExportedSize& size, const std::map<std::string, std::int64_t>& symbols) {
  return size.expression.empty() ? size.number : SizeParser(size.expression, symbols).all();
}

std::vector<std::string> symbols_of(const std::string& expression) {
  std::vector<std::string> found;
  for (std::size_t at = expression.find("Symbol('"); at != std::string::npos; at = expression.find("Symbol('", at)) {
    at += 8;
    const std::size_t end = expression.find('\'', at);
    if (end == std::string::npos) break;
    const std::string name = expression.substr(at, end - at);
    if (std::ranges::find(found, name) == found.end()) found.push_back(name);
  }
  return found;
}

}  // namespace ppengine::models
