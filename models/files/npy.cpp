// .npy files of integers. The header is a Python dict literal; only the form that NumPy writes is read.
#include <ppengine/models/files/npy.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include <ppengine/base/error.hpp>

namespace ppengine::models {
namespace {

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<std::uint64_t>> shape;
};

// {'descr': '<i8', 'fortran_order': False, 'shape': (3, 4), }
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  Header parse() {
    Header header;
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      if (key == "descr" && !header.descr)
        header.descr = string();
      else if (key == "fortran_order" && !header.fortran_order)
        header.fortran_order = boolean();
      else if (key == "shape" && !header.shape)
        header.shape = tuple();
      else
        fail(fmt::format("has an unexpected key '{}'", key.substr(0, 40)));
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_space();
    if (!rest_.empty()) fail("has something after the closing brace");
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { throw FileError(fmt::format("{}: the .npy header {}", file_, what)); }
  void skip_space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\n' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  bool accept(char c) {
    skip_space();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("lacks a '{}'", c));
  }
  std::string string() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect('\'');
    const std::size_t end = rest_.find(quote);
    if (end == std::string_view::npos) fail("has a string without an end");
    std::string value(rest_.substr(0, end));
    if (value.find('\\') != std::string::npos) fail("has an escaped string");
    rest_.remove_prefix(end + 1);
    return value;
  }
  bool boolean() {
    skip_space();
    for (const auto& [word, value] : {std::pair{std::string_view("True"), true}, std::pair{std::string_view("False"), false}})
      if (rest_.starts_with(word)) return rest_.remove_prefix(word.size()), value;
    fail("must say True or False for fortran_order");
  }
  std::vector<std::uint64_t> tuple() {
    std::vector<std::uint64_t> values;
    expect('(');
    while (!accept(')')) {
      skip_space();
      std::uint64_t value = 0;
      std::size_t digits = 0;
      for (; !rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9'; rest_.remove_prefix(1), ++digits)
        if (__builtin_mul_overflow(value, 10u, &value) || __builtin_add_overflow(value, unsigned(rest_.front() - '0'), &value))
          fail("has an absurd shape");
      if (digits == 0 || values.size() >= 32) fail("has a shape that is not a list of numbers");
      if (!rest_.empty() && rest_.front() == 'L') rest_.remove_prefix(1);  // Python 2
      values.push_back(value);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return values;
  }

  std::string_view rest_;
  const std::string& file_;
};

}  // namespace

NpyFile::NpyFile(const std::filesystem::path& path) : map_(path) {
  const std::string name = path.string();
  const auto error = [&](const std::string& what) { return FileError(fmt::format("{}: {}", name, what)); };
  const auto* bytes = reinterpret_cast<const unsigned char*>(map_.data());
  if (map_.size() < 10 || std::memcmp(bytes, "\x93NUMPY", 6) != 0) throw error("is not a .npy file");
  const int version = bytes[6];
  if (version < 1 || version > 3) throw error(fmt::format("is of .npy version {}, which is not known", version));
  const std::size_t prefix = version == 1 ? 10 : 12;
  if (map_.size() < prefix) throw error("is cut short");
  std::uint64_t header_bytes = bytes[8] | std::uint64_t(bytes[9]) << 8;
  if (version > 1) header_bytes |= std::uint64_t(bytes[10]) << 16 | std::uint64_t(bytes[11]) << 24;
  if (header_bytes > 65536) throw error(fmt::format("has a header of {} bytes, which is absurd", header_bytes));
  if (header_bytes > map_.size() - prefix) throw error("is cut short within its header");

  const Header header = HeaderParser({reinterpret_cast<const char*>(bytes) + prefix, header_bytes}, name).parse();
  if (!header.descr || !header.fortran_order || !header.shape) throw error("the .npy header lacks descr, fortran_order or shape");
  if (*header.fortran_order && header.shape->size() > 1) throw error("is in Fortran order: save it with numpy.ascontiguousarray");
  const std::string& descr = *header.descr;
  const bool known = descr.size() == 3 && std::string_view("<>=|").find(descr[0]) != std::string_view::npos &&
                     (descr[1] == 'i' || descr[1] == 'u') && std::string_view("1248").find(descr[2]) != std::string_view::npos;
  if (!known) throw error(fmt::format("has type '{}': tokens must be integers (i1..i8, u1..u8)", descr.substr(0, 40)));
  is_signed_ = descr[1] == 'i';
  item_bytes_ = descr[2] - '0';
  swapped_ = descr[0] == (std::endian::native == std::endian::little ? '>' : '<');

  shape_ = *header.shape;
  if (shape_.empty() || shape_.size() > 2) throw error(fmt::format("has {} dimensions: 1 or 2 are supported", shape_.size()));
  elements_ = 1;
  for (std::uint64_t extent : shape_)
    if (__builtin_mul_overflow(elements_, extent, &elements_) || elements_ > (1ull << 60)) throw error("has an absurd shape");
  const std::uint64_t data_bytes = map_.size() - prefix - header_bytes;
  if (elements_ * item_bytes_ != data_bytes)
    throw error(fmt::format("has {} bytes of data where its shape and type need {}", data_bytes, elements_ * item_bytes_));
  data_ = map_.data() + prefix + header_bytes;
}

std::int64_t NpyFile::at(std::uint64_t index) const {
  unsigned char raw[8] = {};
  const std::byte* from = data_ + index * static_cast<std::uint64_t>(item_bytes_);
  std::memcpy(raw, from, static_cast<std::size_t>(item_bytes_));
  if (swapped_) std::reverse(raw, raw + item_bytes_);
  std::uint64_t value = 0;
  for (int i = 0; i < item_bytes_; ++i) value |= std::uint64_t(raw[i]) << (8 * i);
  const int unused = 64 - 8 * item_bytes_;
  if (is_signed_) return static_cast<std::int64_t>(value << unused) >> unused;
  return static_cast<std::int64_t>(
      std::min<std::uint64_t>(value, INT64_MAX));  // nobody's vocabulary; not a negative number, which is padding
}

}  // namespace ppengine::models
