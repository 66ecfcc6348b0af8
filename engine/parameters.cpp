// The parameters of one stage in flat buffers.
#include <ppengine/engine/parameters.hpp>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {
namespace {

// A standard normal number for each (key, pair of indices): Box and Muller on two hashed uniforms.
void fill_normal(uint64_t key, float scale, std::span<float> out, size_t begin, size_t end) {
  for (size_t i = begin & ~size_t{1}; i < end; i += 2) {
    const uint64_t bits = mix(key + i);
    const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f, v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    const float radius = scale * std::sqrt(-2.0f * std::log(u)), angle = 2.0f * std::numbers::pi_v<float> * v;
    if (i >= begin) out[i] = radius * std::cos(angle);
    if (i + 1 < end) out[i + 1] = radius * std::sin(angle);
  }
}

void make_initial(const ParameterInfo& info, uint64_t seed, std::span<float> out) {
  if (info.init != Init::normal) {
    std::ranges::fill(out, info.init == Init::ones ? 1.0f : 0.0f);
    return;
  }
  const uint64_t key = mix(seed) ^ hash_text(info.name);
  const size_t threads = out.size() < (1u << 16) ? 1 : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> workers;
  for (size_t t = 0; t < threads; ++t)
    workers.emplace_back([=] { fill_normal(key, info.scale, out, out.size() * t / threads, out.size() * (t + 1) / threads); });
}

// to[columns,rows] = from[rows,columns], in tiles that stay in the cache.
void transpose(const float* from, float* to, size_t rows, size_t columns) {
  constexpr size_t tile = 32;
  for (size_t r = 0; r < rows; r += tile)
    for (size_t c = 0; c < columns; c += tile)
      for (size_t i = r; i < std::min(rows, r + tile); ++i)
        for (size_t j = c; j < std::min(columns, c + tile); ++j) to[j * rows + i] = from[i * columns + j];
}

}  // namespace

ops::WeightLayout storage_layout(const ops::Device& device, const ParameterInfo& info) {
  if (info.fixed_layout || !info.linear_weight) return info.file_layout;
  const bool out_in = info.file_layout == ops::WeightLayout::out_in;
  return ops::preferred_layout(device, info.shape[out_in ? 1 : 0], info.shape[out_in ? 0 : 1]);
}

FlatLayout plain_layout(const Graph& graph, const std::vector<int>& ids) {
  std::vector<FlatItem> items;
  for (int id : ids) items.push_back({id, static_cast<size_t>(graph.parameters()[static_cast<size_t>(id)].shape.count()), 0});
  return make_layout(items, {.caps = {SIZE_MAX}});
}

ParameterStore::ParameterStore(std::shared_ptr<ops::Device> device, const Graph& graph, FlatLayout layout, ops::Type compute, bool training,
                               ops::MemoryCounter* counter, Shard shard)
    : graph_(graph), compute_type_(compute), layout_(std::move(layout)), shard_(shard) {
  size_t bucket = 0;
  for (const FlatPlace& place : layout_.places) {
    while (place.offset >= layout_.buckets[bucket].end) ++bucket;
    const ParameterInfo& info = graph.parameters()[static_cast<size_t>(place.id)];
    const bool transposed = info.linear_weight && storage_layout(*device, info) != info.file_layout;
    ranges_.push_back({place.id, place.offset, place.count, transposed, static_cast<int>(bucket)});
    const Bucket& in = layout_.buckets[bucket];
    const size_t begin = in.begin + local_count(in) * static_cast<size_t>(shard_.rank), end = begin + local_count(in);  // this rank's part
    const size_t first = std::max(begin, place.offset), last = std::min(end, place.offset + place.count);
    if (first < last) pieces_.push_back({static_cast<int>(ranges_.size() - 1), first - place.offset, local_begin(in) + first - begin, last - first});
  }
  const size_t count = local_count();
  values_ = ops::Buffer(device, count * sizeof(float), counter);
  if (training) gradients_ = ops::Buffer(device, count * sizeof(float), counter);
  if (compute != ops::Type::f32) copy_ = ops::Buffer(device, count * ops::size_of(compute), counter);
  ops::Stream stream(device);
  for (const ops::Buffer* buffer : {&values_, &gradients_, &copy_})  // the gaps stay zero
    if (buffer->data()) stream.zero(buffer->data(), buffer->bytes());
  stream.wait();
}

const ParameterRange* ParameterStore::find(int id) const {
  const auto found = std::ranges::find(ranges_, id, &ParameterRange::id);
  return found == ranges_.end() ? nullptr : &*found;
}

std::vector<std::pair<size_t, size_t>> ParameterStore::gaps() const {
  std::vector<std::pair<size_t, size_t>> found;
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const size_t end = ranges_[i].offset + ranges_[i].count, next = i + 1 < ranges_.size() ? ranges_[i + 1].offset : count();
    if (end < next) found.emplace_back(end, next);
  }
  return found;
}

void ParameterStore::initialize(ops::Stream& stream, uint64_t seed) {
  std::vector<float> host;
  for (const ParameterRange& range : ranges_) {
    host.resize(static_cast<size_t>(graph_.parameters()[static_cast<size_t>(range.id)].whole_shape().count()));
    make_initial(graph_.parameters()[static_cast<size_t>(range.id)], seed, host);
    load(stream, range, values(), host);
  }
  refresh(stream);
}

void ParameterStore::load(ops::Stream& stream, const ParameterRange& range, float* local, std::span<const float> whole) const {
  const ParameterInfo& info = graph_.parameters()[static_cast<size_t>(range.id)];
  PPENGINE_ASSERT(static_cast<int64_t>(whole.size()) == info.whole_shape().count());
  std::vector<float> part, turned;
  const float* source = whole.data();
  if (info.placement.is_split()) {
    part.resize(range.count);
    take_part(info.placement, whole, part);
    source = part.data();
  }
  if (range.transposed) {
    turned.resize(range.count);
    transpose(source, turned.data(), static_cast<size_t>(info.shape[0]), static_cast<size_t>(info.shape[1]));
    source = turned.data();
  }
  for (const ParameterPiece& piece : pieces_)
    if (&ranges_[static_cast<size_t>(piece.range)] == &range) stream.copy(local + piece.local, source + piece.from, piece.count * sizeof(float));
  stream.wait();
}

void ParameterStore::save(ops::Stream& stream, const ParameterRange& range, const float* flat, std::span<float> part) const {
  const ParameterInfo& info = graph_.parameters()[static_cast<size_t>(range.id)];
  PPENGINE_ASSERT(part.size() == range.count);
  std::vector<float> stored(range.transposed ? range.count : 0);
  float* target = range.transposed ? stored.data() : part.data();
  stream.copy(target, flat + range.offset, range.count * sizeof(float));
  stream.wait();
  if (range.transposed) transpose(target, part.data(), static_cast<size_t>(info.shape[1]), static_cast<size_t>(info.shape[0]));
}

void ParameterStore::refresh(ops::Stream& stream) {
  if (copy_.data()) ops::cast(stream, ops::Type::f32, values(), compute_type_, copy_.data(), static_cast<int64_t>(local_count()));
}

}  // namespace ppengine::engine
