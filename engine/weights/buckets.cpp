// The rule that fills buckets, and the layout that follows from it.
#include <ppengine/engine/weights/buckets.hpp>

#include <algorithm>
#include <map>

#include <ppengine/base/error.hpp>

namespace ppengine::engine {

std::vector<std::vector<std::size_t>> assign_buckets(std::span<const BucketItem> items, std::span<const std::size_t> caps,
                                                     BucketOrder order) {
  PPENGINE_ASSERT(!caps.empty());
  struct Open {
    std::vector<std::size_t> items;
    std::size_t bytes = 0, cap = 0;  // cap: which one of the list
  };
  std::map<int, Open> open;
  std::vector<std::vector<std::size_t>> closed;
  const auto close = [&](Open& one) {
    closed.push_back(std::move(one.items));
    one.items.clear();
    one.bytes = 0;
    one.cap = std::min(one.cap + 1, caps.size() - 1);
  };
  for (std::size_t i = 0; i < items.size(); ++i) {
    Open& one = open[items[i].key];
    one.items.push_back(i);
    one.bytes += items[i].bytes;
    if (one.bytes >= caps[one.cap]) close(one);
  }
  std::vector<Open*> left;
  for (auto& [key, one] : open)
    if (!one.items.empty()) left.push_back(&one);
  std::ranges::sort(left, {}, [](const Open* one) { return one->items.back(); });
  for (Open* one : left) close(*one);
  if (order == BucketOrder::by_first) std::ranges::sort(closed, {}, [](const auto& bucket) { return bucket.front(); });
  return closed;
}

FlatLayout make_layout(std::span<const FlatItem> items, const BucketOptions& options, int shards) {
  const auto padded = [&](std::size_t count) { return ops::align_up(count, flat_alignment); };
  std::vector<BucketItem> reduced;
  std::vector<const FlatItem*> order, rest;
  for (const FlatItem& item : items) {
    if (item.key < 0) {
      rest.push_back(&item);
      continue;
    }
    order.push_back(&item);
    reduced.push_back({item.count * sizeof(float), item.key});
  }
  FlatLayout layout;
  const auto add = [&](const std::vector<const FlatItem*>& members) {
    Bucket bucket{layout.count, 0, members.front()->key, {}};
    for (const FlatItem* item : members) {
      layout.places.push_back({item->id, layout.count, item->count});
      layout.count = padded(layout.count + item->count);
      bucket.parameters.push_back(item->id);
    }
    layout.count = bucket.end = ops::align_up(layout.count, flat_alignment * static_cast<std::size_t>(shards));
    layout.buckets.push_back(std::move(bucket));
  };
  const auto caps = options.effective();
  for (const auto& bucket : assign_buckets(reduced, caps, BucketOrder::by_closing)) {
    std::vector<const FlatItem*> members;
    members.reserve(bucket.size());
    for (std::size_t i : bucket) members.push_back(order[i]);
    add(members);
  }
  layout.reduced = layout.count;
  if (!rest.empty()) add(rest);
  return layout;
}

}  // namespace ppengine::engine
