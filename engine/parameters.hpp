// The parameters of one stage in flat buffers: values, gradients, and a copy in the compute type where that is not f32.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ppengine/engine/graph.hpp>
#include <ppengine/ops/memory.hpp>
#include <ppengine/ops/stream.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::engine {

// How a parameter lies in the flat buffer: linear weights in the layout that is fastest on the device, others as in the file.
ops::WeightLayout storage_layout(const ops::Device& device, const ParameterInfo& info);

// A linear's weight as inference stores it.
ops::PackedWeight packed_weight(const ParameterInfo& info, const ops::WeightStorage& storage);

struct ParameterRange {
  int id = 0;            // in the graph
  size_t offset = 0;     // in the flat buffer, in elements; aligned
  size_t count = 0;
  bool transposed = false;  // against the file
  size_t compute_offset = 0, compute_bytes = 0;  // in what compute reads
};

class ParameterStore {
 public:
  ParameterStore(std::shared_ptr<ops::Device> device, const Graph& graph, const std::vector<int>& ids, ops::Type compute, bool training,
                 ops::MemoryCounter* counter = nullptr, const ops::WeightStorage& weights = {});

  const std::vector<ParameterRange>& ranges() const { return ranges_; }
  const ParameterRange* find(int id) const;
  size_t count() const { return count_; }  // of the flat buffer, with what alignment adds

  float* values() const { return values_.as<float>(); }  // null where weights are stored narrower (inference)
  float* gradients() const { return gradients_.as<float>(); }  // null when not training
  // The weights that compute reads: the values themselves, their copy in bf16, or the weights of linears packed and the others in f32.
  void* compute() const { return copy_.data() ? copy_.data() : values_.data(); }
  void* compute_copy() const { return copy_.data(); }  // null when compute is f32
  ops::Type compute_type() const { return compute_type_; }

  // Fills the values from (seed, name): the same for every split, rank and device.
  void initialize(ops::Stream& stream, uint64_t seed);
  // One parameter of a flat buffer (values, or an optimizer's state of the same shape) from and to the file's layout on the host: from the
  // whole tensor, of which a tensor-parallel rank takes its part; to that part.
  void load(ops::Stream& stream, const ParameterRange& range, float* flat, std::span<const float> whole) const;
  void save(ops::Stream& stream, const ParameterRange& range, const float* flat, std::span<float> part) const;
  // After values were loaded: brings the compute copy up to date.
  void refresh(ops::Stream& stream);

 private:
  void load_packed(ops::Stream& stream, const ParameterRange& range, std::span<const float> source) const;

  const Graph& graph_;
  ops::Type compute_type_;
  ops::WeightStorage weights_;
  std::vector<ParameterRange> ranges_;
  size_t count_ = 0;
  ops::Buffer values_, gradients_, copy_;
};

}  // namespace ppengine::engine
