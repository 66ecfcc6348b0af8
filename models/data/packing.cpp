// Which documents share a sequence.
#include <algorithm>

#include <ppengine/models/data/jsonl.hpp>

namespace ppengine::models {

std::vector<std::vector<std::uint64_t>> pack_first_fit(const std::vector<std::int64_t>& lengths, std::int64_t length) {
  constexpr std::size_t most_open = 256;
  struct Open {
    std::size_t bin;
    std::int64_t room;
  };
  std::vector<std::vector<std::uint64_t>> bins;
  std::vector<Open> open;
  for (std::uint64_t i = 0; i < lengths.size(); ++i) {
    auto fit = std::ranges::find_if(open, [&](const Open& one) { return one.room >= lengths[i]; });
    if (fit == open.end()) {
      if (open.size() == most_open) open.erase(std::ranges::min_element(open, {}, &Open::room));
      bins.emplace_back();
      open.push_back({bins.size() - 1, length});
      fit = open.end() - 1;
    }
    bins[fit->bin].push_back(i);
    fit->room -= lengths[i];
    if (fit->room == 0) open.erase(fit);
  }
  return bins;
}

}  // namespace ppengine::models
