// How many tokens to guess: few, more after guesses that were all right, none for some time after wrong ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ppengine::runs {

class GuessPace {
 public:
  // Of the next guess; 0: none this time.
  std::int64_t length();
  // How many of the guesses were right.
  void judge(std::size_t guessed, std::size_t right);

 private:
  static constexpr std::int64_t short_guess = 3, long_guess = 7;  // with the token before them: rows that kernels have
  static constexpr int longest_rest = 64;
  std::int64_t length_ = short_guess;
  int rest_ = 0, next_rest_ = 1;  // calls without a guess: now, and after the next wrong one
};

}  // namespace ppengine::runs
