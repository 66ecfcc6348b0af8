// Parts of parameters.
#include <ppengine/engine/graph/placement.hpp>

#include <algorithm>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {
namespace {

// Calls copy(begin in the whole, begin in the part, count) for every stretch that lies together in both.
template <class Copy>
void for_each_stretch(const Placement& placement, Copy&& copy) {
  const auto dims = placement.whole.dims();
  const auto at = static_cast<std::size_t>(placement.dimension);
  std::int64_t outer = 1, inner = 1, begin = 0, part = 0;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (i != at) (i < at ? outer : inner) *= dims[i];
  for (std::int64_t i = 0; i < outer; ++i)
    for (const std::int64_t section : placement.sections) {
      const Stretch mine = stretch_of(section, placement.rank, placement.ranks);
      const std::int64_t count = mine.count * inner;
      copy(static_cast<std::size_t>(begin + mine.begin * inner), static_cast<std::size_t>(part), static_cast<std::size_t>(count));
      begin += section * inner;
      part += count;
    }
}

}  // namespace

Stretch stretch_of(std::int64_t size, int rank, int ranks) {
  const std::int64_t share = size / ranks, more = size % ranks;
  return {rank * share + std::min<std::int64_t>(rank, more), share + (rank < more ? 1 : 0)};
}

ops::Shape Placement::part() const {
  ops::Shape shape = whole;
  if (!is_split()) return shape;
  shape[dimension] = 0;
  for (const std::int64_t section : sections) shape[dimension] += stretch_of(section, rank, ranks).count;
  return shape;
}

void take_part(const Placement& placement, std::span<const float> whole, std::span<float> part) {
  PPENGINE_ASSERT(static_cast<std::int64_t>(whole.size()) == placement.whole.count() &&
                  static_cast<std::int64_t>(part.size()) == placement.part().count());
  for_each_stretch(placement,
                   [&](std::size_t from, std::size_t to, std::size_t count) { std::copy_n(whole.data() + from, count, part.data() + to); });
}

void put_part(const Placement& placement, std::span<const float> part, std::span<float> whole) {
  PPENGINE_ASSERT(static_cast<std::int64_t>(whole.size()) == placement.whole.count() &&
                  static_cast<std::int64_t>(part.size()) == placement.part().count());
  for_each_stretch(placement,
                   [&](std::size_t to, std::size_t from, std::size_t count) { std::copy_n(part.data() + from, count, whole.data() + to); });
}

}  // namespace ppengine::engine
