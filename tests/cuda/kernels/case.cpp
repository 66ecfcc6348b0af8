// Arguments of launches, and comparison of what they leave.
#include "case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>

#include "../../compare.hpp"
#include "values.hpp"

namespace ppengine::test {
namespace {

template <class T>
Argument buffer_of(Element element, const std::vector<T>& values) {
  Argument made{Argument::Kind::buffer, element, std::vector<std::uint8_t>(values.size() * sizeof(T)), true, 0};
  std::memcpy(made.bytes.data(), values.data(), made.bytes.size());
  return made;
}

// Both round the same sums in another order, and what devices approximate differently.
double tolerance_of(Element element) {
  switch (element) {
    case Element::f32:
      return 2e-5;
    case Element::bf16:
      return 1.0 / 128;  // two steps of its eight bits
    default:
      return 0;
  }
}

}  // namespace

KernelCase make_case(const std::string& file, const std::string& kernel, const Grid& grid, std::vector<Argument> arguments,
                     double tolerance) {
  return {file, kernel, grid.dimensions, grid.groups, grid.size, std::move(arguments), tolerance, {}, {}};
}

Argument random(Element element, std::size_t count, double low, double high) {
  static std::mt19937 engine(20261118);
  std::uniform_real_distribution<double> uniform(low, high);
  std::vector<std::uint8_t> bytes(count * element_bytes(element));
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(uniform(engine));
    std::uint32_t bits = 0;
    if (element == Element::i8 || element == Element::i32)
      bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(std::lround(value)));
    else
      std::memcpy(&bits, &value, 4);
    if (element == Element::bf16) bits >>= 16;
    std::memcpy(bytes.data() + i * element_bytes(element), &bits, element_bytes(element));
  }
  return {Argument::Kind::buffer, element, std::move(bytes), true, 0};
}

Argument integers(const std::vector<std::int32_t>& values) { return buffer_of(Element::i32, values); }
Argument longs(const std::vector<std::int64_t>& values) { return buffer_of(Element::raw, values); }
Argument floats(const std::vector<float>& values) { return buffer_of(Element::f32, values); }
Argument empty(Element element, std::size_t count) {
  return {Argument::Kind::buffer, element, std::vector<std::uint8_t>(count * element_bytes(element), 0xaa), false, 0};
}
Argument number(float value) {
  Argument made{Argument::Kind::number, Element::raw, {}, true, 0};
  std::memcpy(&made.value, &value, sizeof value);
  return made;
}
Argument whole(std::int64_t value) { return {Argument::Kind::integer64, Element::raw, {}, true, static_cast<std::uint64_t>(value)}; }
Argument small(std::int32_t value) { return {Argument::Kind::integer32, Element::raw, {}, true, static_cast<std::uint32_t>(value)}; }
Argument none() { return {}; }

std::string difference(const KernelCase& one, const Outcome& expected, const Outcome& got) {
  for (std::size_t a = 0; a < one.arguments.size(); ++a) {
    const Argument& argument = one.arguments[a];
    if (argument.kind != Argument::Kind::buffer || argument.element == Element::raw) continue;
    std::vector<double> want = expected[a], have = got[a];
    if (const auto reduce = one.reduce.find(a); reduce != one.reduce.end()) want = reduce->second(want), have = reduce->second(have);
    // Where neither wrote, nothing is to be compared; where one did, NaN makes it infinite.
    if (want.size() != have.size()) return fmt::format("{} argument {}: {} values in place of {}", one.kernel, a, have.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i)
      if (std::isnan(want[i]) && std::isnan(have[i])) want[i] = have[i] = 0;
    // Sums that differ in their last bits round to the same bf16, but for a few: more than one in 20 is another rounding.
    if (argument.element == Element::bf16 && one.tolerance == 0) {
      const auto others = std::inner_product(want.begin(), want.end(), have.begin(), std::size_t{0}, std::plus(), std::not_equal_to());
      if (others > 1 + want.size() / 20)
        return fmt::format("{} argument {}: {} of {} are not the same", one.kernel, a, others, want.size());
    }
    const Largest largest = largest_distance(have, want);
    const double allowed = (one.tolerance > 0 ? one.tolerance : tolerance_of(argument.element)) * largest.magnitude;
    if (!(largest.distance <= allowed))
      return fmt::format("{} argument {}: {} at {} in place of {}, allowed {}", one.kernel, a, have.at(largest.where), largest.where,
                         want.at(largest.where), allowed);
  }
  return {};
}

}  // namespace ppengine::test
