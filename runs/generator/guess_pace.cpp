// GuessPace: how many tokens are worth guessing.
#include <ppengine/runs/generator/guess_pace.hpp>

#include <algorithm>

namespace ppengine::runs {

std::int64_t GuessPace::length() {
  if (rest_ > 0) return --rest_, 0;
  return length_;
}

void GuessPace::judge(std::size_t guessed, std::size_t right) {
  length_ = right == guessed ? long_guess : short_guess;
  if (2 * right >= guessed) {
    next_rest_ = 1;
  } else {
    rest_ = next_rest_;
    next_rest_ = std::min(2 * next_rest_, longest_rest);
  }
}

}  // namespace ppengine::runs
