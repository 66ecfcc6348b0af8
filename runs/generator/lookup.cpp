// Lookup: guesses the continuation of a text from what it said before.
#include <ppengine/runs/generator/lookup.hpp>

namespace ppengine::runs {

std::vector<std::int32_t> look_up(std::span<const std::int32_t> prompt, std::span<const std::int32_t> generated, std::int64_t most) {
  constexpr std::size_t compared = 3;  // tokens that must be the same
  const std::size_t size = prompt.size() + generated.size();
  const auto at = [&](std::size_t i) { return i < prompt.size() ? prompt[i] : generated[i - prompt.size()]; };
  if (size <= compared) return {};
  for (std::size_t end = size - 1; end >= compared; --end) {  // behind the tokens that are compared
    bool same = true;
    for (std::size_t k = 1; same && k <= compared; ++k) same = at(end - k) == at(size - k);
    if (!same) continue;
    std::vector<std::int32_t> found;
    for (std::size_t i = end; i < size && static_cast<std::int64_t>(found.size()) < most; ++i) found.push_back(at(i));
    return found;
  }
  return {};
}

}  // namespace ppengine::runs
