// Weights that are stored narrower than f32: packing on the host, widening and gathering on the device.
#include <ppengine/ops/weights.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/cpu/gemm.hpp>
#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

constexpr std::int64_t block = 32, block_bytes = 16;  // of int4, as in kernels/few_rows_shared.hpp

std::uint16_t to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, quiet = (bits >> 16) | 0x40u;
  return static_cast<std::uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

// One group: its scale, and its values in units of it.
float pack_group(const float* __restrict from, std::int8_t* __restrict to, std::int64_t count) {
  std::uint32_t largest = 0;  // of the magnitudes' bits, which sort as the numbers do
  for (std::int64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffu);
  const float scale = std::bit_cast<float>(largest) / 127.0f, inverse = scale > 1e-37f ? 1.0f / scale : 0.0f;
  constexpr float magic = 12582912.0f;  // 1.5 · 2^23: adding it rounds to a whole number, to nearest and ties to even
  for (std::int64_t i = 0; i < count; ++i)
    to[i] = static_cast<std::int8_t>(std::bit_cast<std::int32_t>(from[i] * inverse + magic) - 0x4b400000);
  return scale;
}

float from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

// One group of 4 bits, whole blocks but at the end of a row.
std::uint32_t pack_nibbles(const float* from, std::uint8_t* to, std::int64_t count) {
  const auto [least, largest] = std::minmax_element(from, from + count);
  const std::uint16_t step_bits = to_bf16((*largest - *least) / 15.0f), least_bits = to_bf16(*least);
  const float step = from_bf16(step_bits), zero = from_bf16(least_bits), inverse = step > 1e-37f ? 1.0f / step : 0.0f;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto q = static_cast<std::uint8_t>(std::clamp(std::nearbyint((from[i] - zero) * inverse), 0.0f, 15.0f));
    to[i / block * block_bytes + i % block_bytes] |= static_cast<std::uint8_t>(i % block < block_bytes ? q : q << 4);
  }
  return static_cast<std::uint32_t>(step_bits) << 16 | least_bits;
}

// Rows [begin, end) of `from`, the first of which is row `first` of the weight.
void pack_rows(const PackedWeight& weight, const float* from, std::byte* to, std::int64_t first, std::int64_t begin, std::int64_t end) {
  const std::int64_t in = weight.in, group = weight.group(), groups = weight.groups();
  for (std::int64_t row = begin; row < end; ++row) {
    const float* const values = from + row * in;
    std::byte* const packed = to + static_cast<std::size_t>(first + row) * weight.row_bytes();
    std::byte* const scales = to + weight.scales_offset() + static_cast<std::size_t>((first + row) * groups) * sizeof(float);
    if (weight.storage.format == WeightFormat::bf16) {
      auto* const out = reinterpret_cast<std::uint16_t*>(packed);
      for (std::int64_t i = 0; i < in; ++i) out[i] = to_bf16(values[i]);
      continue;
    }
    if (weight.storage.format == WeightFormat::int4) std::fill_n(packed, weight.row_bytes(), std::byte{0});
    for (std::int64_t part = 0, at = 0; at < in; ++part, at += group) {
      const std::int64_t count = std::min(group, in - at);
      if (weight.storage.format == WeightFormat::int4)
        reinterpret_cast<std::uint32_t*>(scales)[part] =
            pack_nibbles(values + at, reinterpret_cast<std::uint8_t*>(packed) + at / block * block_bytes, count);
      else
        reinterpret_cast<float*>(scales)[part] = pack_group(values + at, reinterpret_cast<std::int8_t*>(packed) + at, count);
    }
  }
}

}  // namespace

const char* name_of(WeightFormat format) {
  constexpr const char* names[] = {"f32", "bf16", "int8", "int4"};
  return names[static_cast<std::size_t>(format)];
}

WeightFormat parse_weight_format(std::string_view name) {
  for (WeightFormat format : {WeightFormat::f32, WeightFormat::bf16, WeightFormat::int8, WeightFormat::int4})
    if (name == name_of(format)) return format;
  throw ConfigError(fmt::format("--weights {}: f32, bf16, int8 and int4 are available", name));
}

std::size_t PackedWeight::row_bytes() const {
  switch (storage.format) {
    case WeightFormat::f32:
      return static_cast<std::size_t>(in) * 4;
    case WeightFormat::bf16:
      return static_cast<std::size_t>(in) * 2;
    case WeightFormat::int8:
      return static_cast<std::size_t>(in);
    case WeightFormat::int4:
      return static_cast<std::size_t>(divide_up(in, block) * block_bytes);
  }
  return 0;
}

std::size_t PackedWeight::scales_offset() const { return align_up(static_cast<std::size_t>(out) * row_bytes()); }

std::size_t PackedWeight::bytes() const {
  const std::size_t scales = storage.has_scales() ? static_cast<std::size_t>(out * groups()) * sizeof(float) : 0;
  return align_up(scales_offset() + scales);
}

void pack(const PackedWeight& weight, std::span<const float> values, std::span<std::byte> to) {
  PPENGINE_ASSERT(static_cast<std::int64_t>(values.size()) == weight.out * weight.in);
  pack_outputs(weight, 0, values, to);
}

void pack_outputs(const PackedWeight& weight, std::int64_t first, std::span<const float> values, std::span<std::byte> to) {
  if (weight.storage.format == WeightFormat::int4 && weight.group() % block != 0)
    throw ConfigError(fmt::format("--weight-group {}: groups of int4 weights are multiples of 32", weight.group()));
  const std::int64_t count = static_cast<std::int64_t>(values.size()) / weight.in;
  PPENGINE_ASSERT(static_cast<std::int64_t>(values.size()) == count * weight.in && first + count <= weight.out &&
                  to.size() >= weight.bytes());
  if (weight.storage.format == WeightFormat::f32) {
    std::memcpy(to.data() + static_cast<std::size_t>(first) * weight.row_bytes(), values.data(), values.size_bytes());
    return;
  }
  const std::int64_t threads = values.size() < (1u << 18) ? 1 : std::max<std::int64_t>(1, std::thread::hardware_concurrency());
  const auto part = [=](std::int64_t t) {
    pack_rows(weight, values.data(), to.data(), first, count * t / threads, count * (t + 1) / threads);
  };
  std::vector<std::jthread> workers;
  for (std::int64_t t = 1; t < threads; ++t) workers.emplace_back(part, t);
  part(0);
}

void take_inputs(const PackedWeight& whole, std::span<const std::byte> packed, std::int64_t begin, const PackedWeight& part,
                 std::span<std::byte> to) {
  PPENGINE_ASSERT(whole.out == part.out && begin + part.in <= whole.in && (whole.groups() == 1 || begin % whole.group() == 0));
  PackedWeight before = whole;  // the inputs that are left out
  before.in = begin;
  for (std::size_t row = 0; row < static_cast<std::size_t>(part.out); ++row)
    std::memcpy(to.data() + row * part.row_bytes(), packed.data() + row * whole.row_bytes() + before.row_bytes(), part.row_bytes());
  if (!whole.storage.has_scales()) return;
  const float* const from = whole.scales(packed.data());
  auto* const scales = reinterpret_cast<float*>(to.data() + part.scales_offset());
  for (std::int64_t row = 0; row < part.out; ++row)
    std::copy_n(from + row * whole.groups() + begin / whole.group(), part.groups(), scales + row * part.groups());
}

void widen(Stream& stream, const PackedWeight& weight, const void* packed, float* dst) {
  Device& device = stream.device();
  if (weight.storage.format == WeightFormat::f32)
    return stream.copy(dst, packed, static_cast<std::size_t>(weight.out * weight.in) * sizeof(float));
  const Split split =
      weight.storage.has_scales() ? split_rows(device, weight.out, weight.in) : split_elements(device, weight.out * weight.in);
  device.kernels()
      .get("weights", fmt::format("widen_{}", name_of(weight.storage.format)))
      .launch(stream, split.groups, split.size, packed, weight.scales(packed), dst, weight.out, weight.in, weight.group(), split.chunk);
}

void gather(Stream& stream, const PackedEmbeddingSpec& spec, const std::int32_t* ids, const void* table, const float* positions,
            const std::int32_t* first, float* dst) {
  Device& device = stream.device();
  const std::int64_t tokens = spec.batch * spec.length;
  const Split split = split_rows(device, tokens, spec.table.in);
  PPENGINE_ASSERT(spec.table.storage.format != WeightFormat::f32);
  device.kernels()
      .get("weights", fmt::format("gather_{}", name_of(spec.table.storage.format)))
      .launch(stream, split.groups, split.size, ids, table, spec.table.scales(table), positions, first, dst, tokens, spec.length,
              spec.table.in, spec.begin, spec.table.out, spec.table.group(), split.chunk);
}

void read_all(Stream& stream, const float* src, float* sums, std::int64_t count) {
  Device& device = stream.device();
  const bool cpu = device.info().is_cpu;
  if (cpu && cpu::has_vectors()) {
    stream.wait();
    const std::int64_t part = divide_up(divide_up(count, read_sums), 1024) * 1024;
    return cpu::for_parts(count, part, [&](std::int64_t begin, std::int64_t end) {
      sums[begin / part] = cpu::product_loops()->read(src + begin, end - begin);
    });
  }
  const std::int64_t groups =
      cpu ? std::min<std::int64_t>(read_sums, std::int64_t{device.info().compute_units} * std::int64_t{cpu_groups_per_core})
          : 128;  // sub-groups of 8 or more
  const std::int64_t chunk = divide_up(divide_up(count, groups), 1024) * 1024;
  device.kernels()
      .get("weights", "read_all")
      .launch(stream, static_cast<std::size_t>(groups), cpu ? cpu_lanes : 256, src, sums, count, chunk);
}

}  // namespace ppengine::ops
