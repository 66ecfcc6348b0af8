// Weights of linear layers as inference stores them: f32, bf16, int8 with scales, or 4 bits; always [out,in]. They are only read narrower:
// arithmetic is f32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/kinds.hpp>

namespace ppengine::ops {

// One weight as it lies in memory: out·in elements, then, at the next multiple of 64 bytes, the scales [out, groups] of int8 and int4.
// Blocks of 32 inputs of int4 take 16 bytes (the lower halves of these are the first 16 inputs), its scales are words: what one step is
// worth as bf16 in the upper half, what zero is worth in the lower.
struct PackedWeight {
  WeightStorage storage;
  std::int64_t out = 0, in = 0;

  std::int64_t group() const {
    if (storage.format == WeightFormat::int4) return storage.group > 0 ? storage.group : 32;
    return storage.group > 0 && storage.group < in ? storage.group : in;
  }
  std::int64_t groups() const { return (in + group() - 1) / group(); }
  std::size_t row_bytes() const;
  std::size_t scales_offset() const;
  std::size_t bytes() const;
  const float* scales(const void* weight) const {
    return reinterpret_cast<const float*>(static_cast<const std::byte*>(weight) + scales_offset());
  }
};

// From f32 [out,in] on the host to the packed form on the host: bf16 rounds to nearest; int8 rounds w / scale with scale = largest |w| /
// 127; int4 rounds (w - least) / step, 0 to 15, with step = (largest - least) / 15, where both are rounded to bf16 first.
void pack(const PackedWeight& weight, std::span<const float> values, std::span<std::byte> to);
// The same for some outputs, from `first` on: what lies in `to` for others stays. `to` is the whole weight's.
void pack_outputs(const PackedWeight& weight, std::int64_t first, std::span<const float> values, std::span<std::byte> to);
// The inputs [begin, begin + part.in) of a packed weight, with the scales of the whole. Both on the host; `begin` is where a group begins.
void take_inputs(const PackedWeight& whole, std::span<const std::byte> packed, std::int64_t begin, const PackedWeight& part,
                 std::span<std::byte> to);
// The packed form on the device, back to f32 [out,in].
void widen(Stream& stream, const PackedWeight& weight, const void* packed, float* dst);

// Embedding over a packed table [vocabulary,width], whose first row is that of token `begin`: dst[batch*length,width] = table[ids - begin]
// + positions[first[b] + t]. Ids outside of the table give a row of zeros.
struct PackedEmbeddingSpec {
  PackedWeight table;
  std::int64_t batch = 0, length = 0;
  std::int64_t begin = 0;
};
void gather(Stream& stream, const PackedEmbeddingSpec& spec, const std::int32_t* ids, const void* table, const float* positions,
            const std::int32_t* first, float* dst);

// Reads all of a buffer and adds it up, with as little arithmetic as possible: for measuring bandwidth. sums: read_sums floats.
constexpr std::int64_t read_sums = 4096;
void read_all(Stream& stream, const float* src, float* sums, std::int64_t count);

}  // namespace ppengine::ops
