// Guesses of what a text goes on with.
#include <ppengine/runs/lookup.hpp>

#include <algorithm>

namespace ppengine::runs {
namespace {

constexpr std::size_t compared = 3;                      // tokens that must be the same
constexpr std::int64_t short_guess = 3, long_guess = 7;  // with the token before them: rows that kernels have
constexpr int longest_rest = 64;

}  // namespace

std::vector<std::int32_t> Lookup::guess(std::span<const std::int32_t> prompt, std::span<const std::int32_t> generated, std::int64_t most) {
  if (rest_ > 0) return --rest_, std::vector<std::int32_t>();
  const std::size_t size = prompt.size() + generated.size();
  const auto at = [&](std::size_t i) { return i < prompt.size() ? prompt[i] : generated[i - prompt.size()]; };
  if (size <= compared) return {};
  for (std::size_t end = size - 1; end >= compared; --end) {  // behind the tokens that are compared
    bool same = true;
    for (std::size_t k = 1; same && k <= compared; ++k) same = at(end - k) == at(size - k);
    if (!same) continue;
    std::vector<std::int32_t> found;
    for (std::size_t i = end; i < size && static_cast<std::int64_t>(found.size()) < std::min(most, length_); ++i) found.push_back(at(i));
    return found;
  }
  return {};
}

void Lookup::judge(std::size_t guessed, std::size_t right) {
  length_ = right == guessed ? long_guess : short_guess;
  if (2 * right >= guessed) {
    next_rest_ = 1;
  } else {
    rest_ = next_rest_;
    next_rest_ = std::min(2 * next_rest_, longest_rest);
  }
}

}  // namespace ppengine::runs
