// The parameters of one stage in flat buffers: values, gradients, and a copy in the compute type where that is not f32. Sharded, a rank's
// buffers hold one part of every bucket, alone or where it lies in the whole.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/weights/buckets.hpp>
#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::engine {

// How a parameter lies in the flat buffer: linear weights in the layout that is fastest on the device, others as in the file.
ops::WeightLayout storage_layout(const ops::Device& device, const ParameterInfo& info);

// A linear's weight as inference stores it.
ops::PackedWeight packed_weight(const ParameterInfo& info, const ops::WeightStorage& storage);

struct ParameterRange {
  ParameterId id = {};     // in the graph
  std::size_t offset = 0;  // in the flat buffer of the whole stage, in elements; aligned
  std::size_t count = 0;
  bool transposed = false;                            // against the file
  std::size_t compute_offset = 0, compute_bytes = 0;  // in what compute reads
  std::size_t bucket = 0;
};

// Several ranks that share one stage's parameters, and which of them this is. What compute reads and the gradients may have room for all
// parts: those of other ranks are then gathered or reduced in place.
struct Shard {
  int rank = 0, ranks = 1;
  bool whole_weights = false, whole_gradients = false;
};

// A part of a parameter that lies in this rank's buffers: all of it when nothing is sharded.
struct ParameterPiece {
  std::size_t range = 0;  // index in ranges()
  std::size_t from = 0;   // element of the parameter, as it is stored
  std::size_t local = 0;  // element of this rank's parts, one after the other
  std::size_t count = 0;
};

// The parameters one after the other, in one bucket: where nothing is reduced.
FlatLayout plain_layout(const Graph& graph, const std::vector<ParameterId>& ids);

class ParameterStore {
 public:
  ParameterStore(const std::shared_ptr<ops::Device>& device, const Graph& graph, FlatLayout layout, ops::Type compute, bool training,
                 ops::MemoryCounter* counter = nullptr, Shard shard = {}, const ops::WeightStorage& weights = {});

  const std::vector<ParameterRange>& ranges() const { return ranges_; }  // by offset
  const ParameterRange* find(ParameterId id) const;
  const std::vector<Bucket>& buckets() const { return layout_.buckets; }
  std::size_t count() const { return layout_.count; }  // of the whole stage's flat buffer, with what alignment adds
  // Of that, what lies in values() in f32: packed weights (ParameterInfo::storage) come last.
  std::size_t value_count() const { return value_count_; }
  // Of all, what has gradients and optimizer state: not what is frozen or unused, which comes last.
  std::size_t trained_count() const { return layout_.reduced; }
  std::size_t local_trained_count() const { return layout_.reduced / static_cast<std::size_t>(shard_.ranks); }
  // What this rank holds of it: part `rank` of every bucket.
  const Shard& shard() const { return shard_; }
  bool sharded() const { return shard_.ranks > 1; }
  std::size_t local_count() const { return layout_.count / static_cast<std::size_t>(shard_.ranks); }
  std::size_t local_count(const Bucket& bucket) const { return bucket.count() / static_cast<std::size_t>(shard_.ranks); }
  // Where its part of a bucket begins: in an optimizer's state (parts one after the other), in values(), gradients() and compute().
  std::size_t local_begin(const Bucket& bucket) const { return begin(bucket, false); }
  std::size_t value_begin(const Bucket& bucket) const { return begin(bucket, whole_values()); }
  std::size_t gradient_begin(const Bucket& bucket) const { return begin(bucket, shard_.whole_gradients); }
  std::size_t compute_begin(const Bucket& bucket) const { return begin(bucket, shard_.whole_weights); }
  bool whole_values() const { return shard_.whole_weights && compute_type_ == ops::Type::f32; }
  const Bucket& bucket_of(const ParameterRange& range) const { return layout_.buckets[range.bucket]; }
  const std::vector<ParameterPiece>& pieces() const { return pieces_; }  // by local
  // Parts of the gradients' flat buffer that belong to no parameter: [begin, end). Few and short.
  std::vector<std::pair<std::size_t, std::size_t>> gaps() const;

  float* values() const { return values_.as<float>(); }        // null where weights are stored narrower (inference)
  float* gradients() const { return gradients_.as<float>(); }  // null when not training
  // The weights that compute reads: the values themselves and behind them packed ones, their copy in bf16, or in inference the weights of
  // linears packed and the others in f32.
  void* compute() const { return copy_.data() ? copy_.data() : values_.data(); }
  void* compute_copy() const { return copy_.data(); }  // null when compute is f32
  ops::Type compute_type() const { return compute_type_; }

  // Fills the values from (seed, name): the same for every split, rank and device.
  void initialize(ops::Stream& stream, std::uint64_t seed);
  // One parameter's values from the file's layout on the host: of the whole tensor a tensor-parallel rank takes its part, and of that a
  // sharded one its pieces.
  void load(ops::Stream& stream, const ParameterRange& range, std::span<const float> whole);
  // The same row by row of the file, where a rank keeps rows as they are there: so that a large tensor is never held twice.
  bool loads_rows(const ops::Stream& stream, const ParameterRange& range) const;
  void load_rows(ops::Stream& stream, const ParameterRange& range, std::int64_t first, std::span<const float> rows);
  // The same for an optimizer's state.
  void load_state(ops::Stream& stream, const ParameterRange& range, float* state, std::span<const float> whole) const;
  // The reverse, from a flat buffer of the whole stage (sharded: gathered before) to a tensor-parallel rank's part.
  void save(ops::Stream& stream, const ParameterRange& range, const float* flat, std::span<float> part) const;
  // After values were loaded: brings the compute copy up to date.
  void refresh(ops::Stream& stream);
  // With whole weights: whether the other ranks' parts are those of the last update.
  bool gathered() const { return gathered_; }
  void set_gathered(bool gathered) { gathered_ = gathered; }

 private:
  std::size_t begin(const Bucket& bucket, bool whole) const {
    return whole ? bucket.begin + local_count(bucket) * static_cast<std::size_t>(shard_.rank)
                 : bucket.begin / static_cast<std::size_t>(shard_.ranks);
  }
  // `shift`: from a piece's place among the parts to its place behind `target`.
  void place(ops::Stream& stream, const ParameterRange& range, float* target, std::size_t shift, std::span<const float> whole) const;
  // How a parameter lies in what compute reads.
  ops::WeightStorage storage_of(const ParameterInfo& info) const;
  void load_packed(ops::Stream& stream, const ParameterRange& range, std::span<const float> source) const;
  std::vector<std::byte> pack_whole_and_take(const ParameterInfo& info, std::span<const float> whole) const;

  const Graph& graph_;
  ops::Type compute_type_;
  FlatLayout layout_;
  Shard shard_;
  ops::WeightStorage weights_;
  std::vector<ParameterRange> ranges_;
  std::vector<ParameterPiece> pieces_;
  ops::Buffer values_, gradients_, copy_;
  std::size_t value_count_ = 0;
  bool gathered_ = false;
};

}  // namespace ppengine::engine
