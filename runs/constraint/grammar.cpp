// A grammar over bytes.
#include <ppengine/runs/constraint/grammar.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::runs::constraint {
namespace {

constexpr std::size_t most_instructions = 200'000;

}  // namespace

ByteSet byte_ranges(std::initializer_list<std::pair<int, int>> ranges) {
  ByteSet set;
  for (const auto& [first, last] : ranges)
    for (int i = first; i <= last; ++i) set.set(static_cast<std::size_t>(i));
  return set;
}

std::int32_t Grammar::add(Instruction instruction) {
  if (instructions_.size() >= most_instructions)
    throw ConfigError(fmt::format("the grammar needs more than {} instructions; use smaller limits", most_instructions));
  instructions_.push_back(std::move(instruction));
  return static_cast<std::int32_t>(instructions_.size()) - 1;
}

std::int32_t Grammar::bytes(const ByteSet& set, std::int32_t next) {
  auto found = std::ranges::find(sets_, set);
  if (found == sets_.end()) found = sets_.insert(sets_.end(), set);
  return add({.kind = Kind::bytes, .next = next, .which = static_cast<std::int32_t>(found - sets_.begin()), .options = {}});
}

std::int32_t Grammar::text(std::string_view literal, std::int32_t next) {
  for (auto c = literal.rbegin(); c != literal.rend(); ++c) {
    const int byte = static_cast<unsigned char>(*c);
    next = bytes(byte_ranges({{byte, byte}}), next);
  }
  return next;
}

std::int32_t Grammar::choice(std::vector<std::int32_t> options) {
  return options.size() == 1 ? options[0] : add({.kind = Kind::choice, .next = -1, .which = -1, .options = std::move(options)});
}

std::int32_t Grammar::call(std::int32_t rule, std::int32_t next) {
  return add({.kind = Kind::call, .next = next, .which = rule, .options = {}});
}

std::int32_t Grammar::repeat(std::int32_t rule, std::int64_t least, std::int64_t most, std::int32_t next) {
  std::int32_t at = next;
  if (most < 0) {
    at = add({.kind = Kind::choice, .next = -1, .which = -1, .options = {}});
    const std::int32_t again = call(rule, at);
    instructions_[static_cast<std::size_t>(at)].options = {again, next};
  }
  for (std::int64_t i = std::max(most, least); i > 0; --i) {
    const std::int32_t once = call(rule, at);
    at = i > least ? choice({once, next}) : once;
  }
  return at;
}

std::int32_t Grammar::new_rule() {
  rules_.push_back(-1);
  return static_cast<std::int32_t>(rules_.size()) - 1;
}

void Grammar::define(std::int32_t rule, std::int32_t first) { rules_[static_cast<std::size_t>(rule)] = first; }

std::int64_t Grammar::measured(const Instruction& instruction) const {
  std::int64_t least = never;
  switch (instruction.kind) {
    case Kind::end:
      return 0;
    case Kind::bytes:
      return std::min(never, distance(instruction.next) + 1);
    case Kind::call:
      return std::min(never, distance(first_of(instruction.which)) + distance(instruction.next));
    case Kind::choice:
      for (const std::int32_t option : instruction.options) least = std::min(least, distance(option));
  }
  return least;
}

// Distances shrink until nothing changes. Instructions lead to earlier ones for the most part: few rounds.
void Grammar::measure() {
  distances_.assign(instructions_.size(), never);
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t i = 0; i < instructions_.size(); ++i)
      if (const std::int64_t now = measured(instructions_[i]); now < distances_[i]) distances_[i] = now, changed = true;
  }
}

}  // namespace ppengine::runs::constraint
