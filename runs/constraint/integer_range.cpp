// Integers between two bounds.
#include <ppengine/runs/constraint/integer_range.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace ppengine::runs::constraint {
namespace {

std::int32_t digit(Grammar& grammar, int from, int to, std::int32_t next) {
  return grammar.bytes(byte_ranges({{'0' + from, '0' + to}}), next);
}

std::int32_t any_digits(Grammar& grammar, std::size_t count, std::int32_t next) {
  for (; count > 0; --count) next = digit(grammar, 0, 9, next);
  return next;
}

// Texts of digits of one length, from low to high.
std::int32_t same_length(Grammar& grammar, const std::string& low, const std::string& high, std::int32_t next) {
  if (low.empty()) return next;
  if (low.find_first_not_of('0') == low.npos && high.find_first_not_of('9') == high.npos) return any_digits(grammar, low.size(), next);
  const std::size_t rest = low.size() - 1;
  const int first = low[0] - '0', last = high[0] - '0';
  if (first == last) return digit(grammar, first, first, same_length(grammar, low.substr(1), high.substr(1), next));
  std::vector<std::int32_t> options{digit(grammar, first, first, same_length(grammar, low.substr(1), std::string(rest, '9'), next)),
                                    digit(grammar, last, last, same_length(grammar, std::string(rest, '0'), high.substr(1), next))};
  if (first + 1 < last) options.push_back(digit(grammar, first + 1, last - 1, any_digits(grammar, rest, next)));
  return grammar.choice(std::move(options));
}

std::int32_t not_negative(Grammar& grammar, std::uint64_t low, std::uint64_t high, std::int32_t next) {
  const std::string least = std::to_string(low), most = std::to_string(high);
  std::vector<std::int32_t> options;
  for (std::size_t length = least.size(); length <= most.size(); ++length) {
    std::string smallest(length, '0');
    smallest[0] = '1';
    options.push_back(
        same_length(grammar, length == least.size() ? least : smallest, length == most.size() ? most : std::string(length, '9'), next));
  }
  return grammar.choice(std::move(options));
}

}  // namespace

std::int32_t integer_range(Grammar& grammar, std::int64_t low, std::int64_t high, std::int32_t next) {
  std::vector<std::int32_t> options;
  const auto magnitude = [](std::int64_t value) { return std::uint64_t{0} - static_cast<std::uint64_t>(value); };  // of a negative one
  if (low < 0) options.push_back(grammar.text("-", not_negative(grammar, high < 0 ? magnitude(high) : 1, magnitude(low), next)));
  if (high >= 0)
    options.push_back(
        not_negative(grammar, static_cast<std::uint64_t>(std::max<std::int64_t>(low, 0)), static_cast<std::uint64_t>(high), next));
  return grammar.choice(std::move(options));
}

}  // namespace ppengine::runs::constraint
