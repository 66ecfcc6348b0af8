// A grammar over bytes: instructions that lead to each other, in rules that call each other.
#pragma once

#include <bitset>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

namespace ppengine::runs::constraint {

using ByteSet = std::bitset<256>;
// Bytes from one to another, both included.
ByteSet byte_ranges(std::initializer_list<std::pair<int, int>> ranges);

// Built from the end to the beginning: each function gives the instruction that does its part and goes on at `next`.
class Grammar {
 public:
  enum class Kind : std::uint8_t { bytes, choice, call, end };  // end: of a rule
  struct Instruction {
    Kind kind = Kind::end;
    std::int32_t next = -1;             // bytes, call
    std::int32_t which = -1;            // bytes: the set; call: the rule
    std::vector<std::int32_t> options;  // choice
  };

  std::int32_t end() const { return 0; }
  std::int32_t bytes(const ByteSet& set, std::int32_t next);
  std::int32_t text(std::string_view literal, std::int32_t next);
  std::int32_t choice(std::vector<std::int32_t> options);
  std::int32_t call(std::int32_t rule, std::int32_t next);
  // `rule` from `least` to `most` times; most below 0: without limit.
  std::int32_t repeat(std::int32_t rule, std::int64_t least, std::int64_t most, std::int32_t next);

  // A rule can be called before it is defined.
  std::int32_t new_rule();
  void define(std::int32_t rule, std::int32_t first);
  std::int32_t first_of(std::int32_t rule) const { return rules_[static_cast<std::size_t>(rule)]; }

  const Instruction& at(std::int32_t i) const { return instructions_[static_cast<std::size_t>(i)]; }
  const ByteSet& set(std::int32_t i) const { return sets_[static_cast<std::size_t>(i)]; }

  // The fewest bytes from each instruction to the end of its rule; `never` where there is no such way. Called once, when all is there.
  static constexpr std::int64_t never = std::int64_t{1} << 40;
  void measure();
  std::int64_t distance(std::int32_t instruction) const { return distances_[static_cast<std::size_t>(instruction)]; }

 private:
  std::int32_t add(Instruction instruction);
  std::int64_t measured(const Instruction& instruction) const;

  std::vector<Instruction> instructions_{Instruction{}};
  std::vector<ByteSet> sets_;
  std::vector<std::int32_t> rules_;
  std::vector<std::int64_t> distances_;
};

}  // namespace ppengine::runs::constraint
