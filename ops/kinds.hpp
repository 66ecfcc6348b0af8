// What graphs and the specs of ops choose from: activations, norms, and how weights lie in memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace ppengine::ops {

enum class ActivationKind { gelu_tanh, gelu_erf, silu, relu };
enum class NormKind { layer, rms };
enum class WeightLayout { out_in, in_out };  // how W lies in memory, row-major

// Of weights as inference stores them.
enum class WeightFormat : std::uint8_t { f32, bf16, int8, int4 };

const char* name_of(WeightFormat format);
WeightFormat parse_weight_format(std::string_view name);  // ConfigError for another word

struct WeightStorage {
  WeightFormat format = WeightFormat::f32;
  // Inputs that share a scale. int8: 0 for all inputs of an output (per channel). int4: a multiple of 32; 0 for 32.
  std::int64_t group = 0;

  bool has_scales() const { return format == WeightFormat::int8 || format == WeightFormat::int4; }
};

}  // namespace ppengine::ops
