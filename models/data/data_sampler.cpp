// The order of sequences. A shuffled epoch is a keyed permutation: a Feistel network on the next power of four, walked on
// until it falls into range. No list is kept, any position can be computed.
#include <fmt/core.h>

#include <bit>
#include <vector>

#include <ppengine/base/error.hpp>
#include <ppengine/models/data/counter_random.hpp>
#include <ppengine/models/data/data.hpp>

namespace ppengine::models {
namespace {

std::uint64_t permute(std::uint64_t value, std::uint64_t count, std::uint64_t key) {
  const int half = (static_cast<int>(std::bit_width(count - 1)) + 1) / 2;
  const std::uint64_t mask = half == 0 ? 0 : (std::uint64_t(1) << half) - 1;
  do {
    std::uint64_t left = value >> half, right = value & mask;
    for (std::uint64_t round = 0; round < 6; ++round) {
      const std::uint64_t next = left ^ (random_bits(key, round, right) & mask);
      left = right;
      right = next;
    }
    value = left << half | right;
  } while (value >= count);  // at most four times on average: the domain is below four times the count
  return value;
}

}  // namespace

DataOrder parse_data_order(std::string_view name) {
  if (name == "sequential") return DataOrder::sequential;
  if (name == "shuffled") return DataOrder::shuffled;
  throw ConfigError(fmt::format("--order {}: use sequential or shuffled", name));
}

DataSampler::DataSampler(std::uint64_t sequences, DataOrder order, std::uint64_t seed) : sequences_(sequences), order_(order), seed_(seed) {
  if (sequences == 0 || sequences > (1ull << 62)) throw ConfigError("the data has no sequences");
}

std::uint64_t DataSampler::at(DataPosition position) const {
  PPENGINE_ASSERT(position.next < sequences_);
  if (order_ == DataOrder::sequential) return position.next;
  return permute(position.next, sequences_, random_bits(seed_, 0x6f72646572, position.epoch));
}

std::vector<std::uint64_t> DataSampler::next(std::size_t count) {
  std::vector<std::uint64_t> numbers(count);
  for (std::uint64_t& number : numbers) {
    number = at(position_);
    if (++position_.next == sequences_) position_ = {position_.epoch + 1, 0};
  }
  return numbers;
}

void DataSampler::seek(DataPosition position) {
  if (position.next >= sequences_)
    throw ConfigError(
        fmt::format("data position {} is past the {} sequences: the data is not the one of the checkpoint", position.next, sequences_));
  position_ = position;
}

}  // namespace ppengine::models
