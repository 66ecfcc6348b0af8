// Packing: which documents share a sequence.
#include <algorithm>
#include <numeric>
#include <set>

#include <ppengine/models/data/jsonl.hpp>

namespace ppengine::models {
namespace {

// Long examples find room first, and short ones fill what is left.
void pack_window(const std::vector<std::int64_t>& lengths, std::uint64_t first, std::uint64_t last, std::int64_t length,
                 std::vector<std::vector<std::uint64_t>>& bins) {
  std::vector<std::uint64_t> order(last - first);
  std::iota(order.begin(), order.end(), first);
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](std::uint64_t one) { return lengths[one]; });
  std::set<std::pair<std::int64_t, std::size_t>> open;  // room and number of sequences that are not full
  for (const std::uint64_t one : order) {
    auto fit = open.lower_bound({lengths[one], 0});  // the fullest that has room
    if (fit == open.end()) {
      bins.emplace_back();
      fit = open.emplace(length, bins.size() - 1).first;
    }
    const auto [room, bin] = *fit;
    open.erase(fit);
    bins[bin].push_back(one);
    open.emplace(room - lengths[one], bin);
  }
}

}  // namespace

std::vector<std::vector<std::uint64_t>> pack_examples(const std::vector<std::int64_t>& lengths, std::int64_t length) {
  constexpr std::uint64_t window = 1 << 14;  // the file's order stays, but for so many examples
  std::vector<std::vector<std::uint64_t>> bins;
  for (std::uint64_t first = 0; first < lengths.size(); first += window) {
    const std::size_t before = bins.size();
    pack_window(lengths, first, std::min<std::uint64_t>(lengths.size(), first + window), length, bins);
    for (std::size_t i = before; i < bins.size(); ++i) std::ranges::sort(bins[i]);
    std::sort(bins.begin() + static_cast<std::ptrdiff_t>(before), bins.end());
  }
  return bins;
}

}  // namespace ppengine::models
