// The addition task: two-digit sums as text, one token per byte, with sums that training never shows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/models/data/data.hpp>

namespace ppengine::models::addition {

struct Sum {
  int left = 0;   // 0..99
  int right = 0;  // 0..99
  int answer() const { return left + right; }
};

// What the model sees: both numbers with two digits, then the answer's three digits from the ones upwards, as one adds
// by hand: 23+58 is "23+58=180;", carries are known when they are needed. What people see: "23+58=81".
std::string encode_question(const Sum& sum);                  // "23+58="
std::string encode_answer(const Sum& sum);                    // "180;"
std::optional<int> decode_answer(std::string_view text);      // "180;..." -> 81; empty where it is not a number
std::string show(const Sum& sum, std::optional<int> answer);  // "23+58=81"
std::optional<Sum> parse_question(std::string_view text);     // "23+58", "23 + 58 ="

inline constexpr int question_tokens = 6;
inline constexpr int answer_tokens = 4;  // with the ';'

// One in ten of the 10,000 sums, chosen by a hash of both numbers, is never in the training data.
bool is_held_out(const Sum& sum);
std::vector<Sum> held_out_sums();

// Sequences of sums drawn at random, targets only where the answer stands ("180;").
std::unique_ptr<TokenSource> make_source(const DataOptions& options);

}  // namespace ppengine::models::addition
