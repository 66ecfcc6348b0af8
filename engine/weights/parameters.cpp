// The parameters of one stage in flat buffers.
#include <ppengine/engine/weights/parameters.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/linear.hpp>

namespace ppengine::engine {
namespace {

// A standard normal number for each (key, pair of indices): Box and Muller on two hashed uniforms.
void fill_normal(std::uint64_t key, float scale, std::span<float> out, std::size_t begin, std::size_t end) {
  for (std::size_t i = begin & ~std::size_t{1}; i < end; i += 2) {
    const std::uint64_t bits = mix(key + i);
    const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f, v = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
    const float radius = scale * std::sqrt(-2.0f * std::log(u)), angle = 2.0f * std::numbers::pi_v<float> * v;
    if (i >= begin) out[i] = radius * std::cos(angle);
    if (i + 1 < end) out[i + 1] = radius * std::sin(angle);
  }
}

// body(begin, end) over parts of [0, count), on all cores where there is enough to do.
template <class Body>
void in_parallel(std::size_t count, std::size_t elements, const Body& body) {
  const std::size_t threads = elements < (1u << 18) ? 1 : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> workers;
  for (std::size_t t = 1; t < threads; ++t) workers.emplace_back([&, t] { body(count * t / threads, count * (t + 1) / threads); });
  body(std::size_t{0}, count / threads);
}

void make_initial(const ParameterInfo& info, std::uint64_t seed, std::span<float> out) {
  if (info.init == Init::uniform) {
    const std::uint64_t from = mix(seed) ^ hash_text(info.name);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = info.scale * ((static_cast<float>(mix(from + i) >> 40) + 0.5f) * 0x1p-23f - 1.0f);
    return;
  }
  if (info.init != Init::normal) {
    std::ranges::fill(out, info.init == Init::ones ? 1.0f : 0.0f);
    return;
  }
  const std::uint64_t key = mix(seed) ^ hash_text(info.name);
  in_parallel(out.size(), out.size(), [&](std::size_t begin, std::size_t end) { fill_normal(key, info.scale, out, begin, end); });
}

// to[columns,rows] = from[rows,columns], in tiles that stay in the cache.
void transpose(const float* from, float* to, std::size_t rows, std::size_t columns) {
  constexpr std::size_t tile = 16;
  in_parallel((columns + tile - 1) / tile, rows * columns, [=](std::size_t begin, std::size_t end) {
    for (std::size_t c = begin * tile; c < std::min(columns, end * tile); c += tile)
      for (std::size_t r = 0; r < rows; r += tile)
        for (std::size_t j = c; j < std::min(columns, c + tile); ++j)
          for (std::size_t i = r; i < std::min(rows, r + tile); ++i) to[j * rows + i] = from[i * columns + j];
  });
}

bool divides_inputs(const ParameterInfo& info) {
  return info.linear_weight && info.placement.dimension == (info.file_layout == ops::WeightLayout::out_in ? 1 : 0);
}

}  // namespace

ops::WeightLayout storage_layout(const ops::Device& device, const ParameterInfo& info) {
  if (info.fixed_layout || !info.linear_weight) return info.file_layout;
  const bool out_in = info.file_layout == ops::WeightLayout::out_in;
  return ops::preferred_layout(device, info.shape[out_in ? 1 : 0], info.shape[out_in ? 0 : 1]);
}

ops::PackedWeight packed_weight(const ParameterInfo& info, const ops::WeightStorage& storage) {
  const bool out_in = info.file_layout == ops::WeightLayout::out_in;
  return {storage, info.shape[out_in ? 0 : 1], info.shape[out_in ? 1 : 0]};
}

FlatLayout plain_layout(const Graph& graph, const std::vector<ParameterId>& ids) {
  std::vector<FlatItem> items;
  items.reserve(ids.size());
  for (const bool packed : {false, true})  // packed ones last
    for (ParameterId id : ids) {
      const ParameterInfo& info = graph.parameters()[id];
      if (info.is_packed() == packed) items.push_back({id, static_cast<std::size_t>(info.shape.count()), info.frozen ? -1 : 0});
    }
  return make_layout(items, {.caps = {SIZE_MAX}});
}

ParameterStore::ParameterStore(const std::shared_ptr<ops::Device>& device, const Graph& graph, FlatLayout layout, ops::Type compute,
                               bool training, ops::MemoryCounter* counter, Shard shard, const ops::WeightStorage& weights)
    : graph_(graph), compute_type_(compute), layout_(std::move(layout)), shard_(shard), weights_(weights) {
  const bool packed = weights.format != ops::WeightFormat::f32;
  PPENGINE_ASSERT(!packed || (!training && !sharded() && compute == ops::Type::f32));
  value_count_ = layout_.count;
  std::size_t bucket = 0, packed_bytes = 0;
  bool behind = false;  // the values: packed ones, of which a stage may have no others
  for (const FlatPlace& place : layout_.places) {
    while (place.offset >= layout_.buckets[bucket].end) ++bucket;
    const ParameterInfo& info = graph.parameters()[place.id];
    const ops::WeightStorage storage = storage_of(info);
    const bool narrow = storage.format != ops::WeightFormat::f32;
    if (info.is_packed() && !packed && !behind) {
      PPENGINE_ASSERT(!sharded() && compute == ops::Type::f32);
      behind = true;
      value_count_ = place.offset;
      packed_bytes = ops::align_up(place.offset * sizeof(float));
    }
    const bool apart = packed || behind;
    PPENGINE_ASSERT(packed || narrow == apart);
    const auto stored = narrow ? ops::WeightLayout::out_in : storage_layout(*device, info);
    ParameterRange range{place.id, place.offset, place.count, info.linear_weight && stored != info.file_layout, 0, 0, bucket};
    range.compute_offset = apart ? packed_bytes : range.offset * ops::size_of(compute);
    range.compute_bytes = narrow ? packed_weight(info, storage).bytes() : range.count * ops::size_of(compute);
    if (apart) packed_bytes += ops::align_up(range.compute_bytes);
    ranges_.push_back(range);
    const Bucket& in = layout_.buckets[bucket];
    const std::size_t begin = in.begin + local_count(in) * static_cast<std::size_t>(shard_.rank),
                      end = begin + local_count(in);  // this rank's part
    const std::size_t first = std::max(begin, place.offset), last = std::min(end, place.offset + place.count);
    if (first < last) pieces_.push_back({ranges_.size() - 1, first - place.offset, local_begin(in) + first - begin, last - first});
  }
  const auto room = [&](bool whole) { return whole ? layout_.count : local_count(); };
  if (packed)
    copy_ = ops::Buffer(device, packed_bytes, counter);
  else
    values_ = ops::Buffer(device, packed_bytes > 0 ? packed_bytes : room(whole_values()) * sizeof(float), counter);
  if (training) {
    const std::size_t trained = shard_.whole_gradients ? trained_count() : local_trained_count();
    gradients_ = ops::Buffer(device, std::max(trained, flat_alignment) * sizeof(float), counter);
  }
  if (compute != ops::Type::f32) copy_ = ops::Buffer(device, room(shard_.whole_weights) * ops::size_of(compute), counter);
  ops::Stream stream(device);
  for (const ops::Buffer* buffer : {&values_, &gradients_, &copy_})  // the gaps stay zero: norms of gradients and updates go over them
    if (buffer->data() && training) stream.zero(buffer->data(), buffer->bytes());
  stream.wait();
}

ops::WeightStorage ParameterStore::storage_of(const ParameterInfo& info) const {
  if (info.is_packed()) return info.storage;
  return info.linear_weight ? weights_ : ops::WeightStorage{};
}

const ParameterRange* ParameterStore::find(ParameterId id) const {
  const auto found = std::ranges::find(ranges_, id, &ParameterRange::id);
  return found == ranges_.end() ? nullptr : &*found;
}

std::vector<std::pair<std::size_t, std::size_t>> ParameterStore::gaps() const {
  std::vector<std::pair<std::size_t, std::size_t>> found;
  for (std::size_t i = 0; i < ranges_.size(); ++i) {
    const std::size_t end = ranges_[i].offset + ranges_[i].count,
                      next = std::min(i + 1 < ranges_.size() ? ranges_[i + 1].offset : count(), trained_count());
    if (end < next) found.emplace_back(end, next);
  }
  return found;
}

void ParameterStore::initialize(ops::Stream& stream, std::uint64_t seed) {
  std::vector<float> host;
  for (const ParameterRange& range : ranges_) {
    host.resize(static_cast<std::size_t>(graph_.parameters()[range.id].whole_shape().count()));
    make_initial(graph_.parameters()[range.id], seed, host);
    load(stream, range, host);
  }
  refresh(stream);
}

void ParameterStore::load(ops::Stream& stream, const ParameterRange& range, std::span<const float> whole) {
  const Bucket& bucket = bucket_of(range);
  place(stream, range, values(), value_begin(bucket) - local_begin(bucket), whole);
  gathered_ = false;
}

bool ParameterStore::loads_rows(const ops::Stream& stream, const ParameterRange& range) const {
  const ParameterInfo& info = graph_.parameters()[range.id];
  return stream.device().info().is_cpu && !range.transposed && !sharded() && !info.placement.is_split() && info.shape.rank() == 2;
}

void ParameterStore::load_rows(ops::Stream& stream, const ParameterRange& range, std::int64_t first, std::span<const float> rows) {
  const ParameterInfo& info = graph_.parameters()[range.id];
  const bool packs = weights_.format != ops::WeightFormat::f32 || info.is_packed();
  stream.wait();
  if (packs && info.linear_weight)
    return ops::pack_outputs(packed_weight(info, storage_of(info)), first, rows,
                             {static_cast<std::byte*>(compute()) + range.compute_offset, range.compute_bytes});
  float* const target =
      packs ? reinterpret_cast<float*>(static_cast<std::byte*>(compute()) + range.compute_offset) : values() + range.offset;
  float* const to = target + first * info.shape[1];
  in_parallel(rows.size(), rows.size(),
              [=](std::size_t begin, std::size_t end) { std::copy(rows.data() + begin, rows.data() + end, to + begin); });
  gathered_ = false;
}

void ParameterStore::load_state(ops::Stream& stream, const ParameterRange& range, float* state, std::span<const float> whole) const {
  place(stream, range, state, 0, whole);
}

void ParameterStore::place(ops::Stream& stream, const ParameterRange& range, float* target, std::size_t shift,
                           std::span<const float> whole) const {
  const ParameterInfo& info = graph_.parameters()[range.id];
  PPENGINE_ASSERT(static_cast<std::int64_t>(whole.size()) == info.whole_shape().count());
  if (divides_inputs(info) && storage_of(info).has_scales()) {
    const auto packed = pack_whole_and_take(info, whole);
    stream.copy(static_cast<std::byte*>(compute()) + range.compute_offset, packed.data(), packed.size());
    return stream.wait();
  }
  std::vector<float> part, turned;
  const float* source = whole.data();
  if (info.placement.is_split()) {
    part.resize(range.count);
    take_part(info.placement, whole, part);
    source = part.data();
  }
  // What a CPU computes with is ordinary memory: it is written in place.
  const bool in_place = stream.device().info().is_cpu, packs = weights_.format != ops::WeightFormat::f32 || info.is_packed();
  if (in_place) stream.wait();
  // All of it in one place: turned as it is written.
  const bool directly = in_place && !packs && !sharded();
  if (range.transposed) {
    if (!directly) turned.resize(range.count);
    float* const to = directly ? target + range.offset : turned.data();
    transpose(source, to, static_cast<std::size_t>(info.shape[0]), static_cast<std::size_t>(info.shape[1]));
    if (directly) return;
    source = to;
  }
  if (packs) return load_packed(stream, range, {source, range.count});
  for (const ParameterPiece& piece : pieces_) {
    if (&ranges_[piece.range] != &range) continue;
    float* const to = target + shift + piece.local;
    const float* const from = source + piece.from;
    if (in_place)
      in_parallel(piece.count, piece.count, [=](std::size_t begin, std::size_t end) { std::copy(from + begin, from + end, to + begin); });
    else
      stream.copy(to, from, piece.count * sizeof(float));
  }
  stream.wait();
}

// A rank that has a part of the inputs has the scales of all of them: the same numbers as one that has the whole weight.
std::vector<std::byte> ParameterStore::pack_whole_and_take(const ParameterInfo& info, std::span<const float> whole) const {
  ParameterInfo undivided = info;
  undivided.shape = info.whole_shape();
  const ops::PackedWeight all = packed_weight(undivided, storage_of(info)), part = packed_weight(info, storage_of(info));
  const std::int64_t begin = stretch_of(all.in, info.placement.rank, info.placement.ranks).begin;
  if (begin % all.group() != 0 && all.groups() > 1)
    throw ConfigError(
        fmt::format("{}: {} tensor-parallel ranks divide its {} inputs inside of a group of {} that share a scale; use groups "
                    "that divide {}",
                    info.name, info.placement.ranks, all.in, all.group(), part.in));
  std::vector<float> turned;
  if (info.file_layout != ops::WeightLayout::out_in) {
    turned.resize(whole.size());
    transpose(whole.data(), turned.data(), static_cast<std::size_t>(all.in), static_cast<std::size_t>(all.out));
    whole = turned;
  }
  std::vector<std::byte> packed(all.bytes()), taken(part.bytes());
  ops::pack(all, whole, packed);
  ops::take_inputs(all, packed, begin, part, taken);
  return taken;
}

void ParameterStore::load_packed(ops::Stream& stream, const ParameterRange& range, std::span<const float> source) const {
  const ParameterInfo& info = graph_.parameters()[range.id];
  std::byte* const target = static_cast<std::byte*>(compute()) + range.compute_offset;
  std::vector<std::byte> packed;
  const void* from = source.data();
  if (info.linear_weight) {
    const bool in_place = stream.device().info().is_cpu;
    if (!in_place) packed.resize(range.compute_bytes);
    ops::pack(packed_weight(info, storage_of(info)), source, in_place ? std::span(target, range.compute_bytes) : std::span(packed));
    if (in_place) return;
    from = packed.data();
  }
  stream.copy(target, from, range.compute_bytes);
  stream.wait();
}

void ParameterStore::save(ops::Stream& stream, const ParameterRange& range, const float* flat, std::span<float> part) const {
  const ParameterInfo& info = graph_.parameters()[range.id];
  PPENGINE_ASSERT(part.size() == range.count);
  std::vector<float> stored(range.transposed ? range.count : 0);
  float* target = range.transposed ? stored.data() : part.data();
  stream.copy(target, flat + range.offset, range.count * sizeof(float));
  stream.wait();
  if (range.transposed) transpose(target, part.data(), static_cast<std::size_t>(info.shape[1]), static_cast<std::size_t>(info.shape[0]));
}

void ParameterStore::refresh(ops::Stream& stream) {
  if (!copy_.data() || !values_.data()) return;
  for (const Bucket& bucket : layout_.buckets)
    ops::cast(stream, ops::Type::f32, values() + value_begin(bucket), compute_type_,
              copy_.at(compute_begin(bucket) * ops::size_of(compute_type_)), static_cast<std::int64_t>(local_count(bucket)));
}

}  // namespace ppengine::engine
