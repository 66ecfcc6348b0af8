// Buckets: which gradients travel together, and how a stage's parameters lie in its flat buffers so that a bucket is one range. Pure
// functions.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/training_options.hpp>
#include <ppengine/ops/device/memory.hpp>

namespace ppengine::engine {

// What the rule sees of a tensor. Only tensors of one key (type, device) share a bucket.
struct BucketItem {
  std::size_t bytes = 0;
  int key = 0;
};

enum class BucketOrder {
  by_first,    // sorted by their first item: when the order of items means nothing
  by_closing,  // as they are filled: when items come in the order in which they become ready
};

// One open bucket per key: an item is added, then the bucket is closed when its size has reached the cap. The caps are walked by each key
// for itself, and the last one stays. What is open at the end is closed then. As PyTorch's compute_bucket_assignment_by_size.
std::vector<std::vector<std::size_t>> assign_buckets(std::span<const BucketItem> items, std::span<const std::size_t> caps,
                                                     BucketOrder order);

// Every parameter begins at a multiple of so many elements: aligned in bf16 too.
constexpr std::size_t flat_alignment = ops::buffer_alignment / sizeof(std::uint16_t);

// A parameter that wants a place.
struct FlatItem {
  ParameterId id = {};
  std::size_t count = 0;  // elements
  int key = 0;            // negative: not reduced (its gradient is never written); such ones come last
};

// A range of the flat buffer, in elements.
struct Bucket {
  std::size_t begin = 0, end = 0;
  int key = 0;
  std::vector<ParameterId> parameters;  // in the order of their offsets
  bool reduced() const { return key >= 0; }
  std::size_t count() const { return end - begin; }
};

struct FlatPlace {
  ParameterId id = {};
  std::size_t offset = 0, count = 0;
};

struct FlatLayout {
  std::vector<Bucket> buckets;    // one after the other, without gaps between them
  std::vector<FlatPlace> places;  // by offset
  std::size_t count = 0;          // elements, with what alignment adds
  std::size_t reduced = 0;        // of these, in buckets that are reduced: they come first, and alone have gradients
};

// Items in the order in which their gradients become final. Every place is aligned, and every bucket can be cut into `shards` aligned
// parts.
FlatLayout make_layout(std::span<const FlatItem> items, const BucketOptions& options, int shards = 1);

}  // namespace ppengine::engine
