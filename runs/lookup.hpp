// Guesses of what a text goes on with: what followed the last time that its last tokens stood in it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ppengine::runs {

class Lookup {
 public:
  // At most so many guesses; none for some time after wrong ones.
  std::vector<std::int32_t> guess(std::span<const std::int32_t> prompt, std::span<const std::int32_t> generated, std::int64_t most);
  // How many of the guesses were right.
  void judge(std::size_t guessed, std::size_t right);

 private:
  std::int64_t length_ = 3;       // of the next guess
  int rest_ = 0, next_rest_ = 1;  // calls without a guess: now, and after the next wrong one
};

}  // namespace ppengine::runs
