// Linears that a folder stores in 4 bits, as GPTQ and AWQ write them: `qweight`, `qzeros`, `scales` and `g_idx` in the place of `weight`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <ppengine/models/config.hpp>
#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {

// w[in, out] = scales[group, out] · (q - zero[group, out]).
// GPTQ: a word of qweight [in/8, out] holds 8 inputs, the first one lowest; g_idx [in] is optional and names each input's group.
// AWQ: a word of qweight [in, out/8] holds 8 outputs, in the order 0, 2, 4, 6, 1, 3, 5, 7 from the lowest. A word of qzeros [groups, out/8]
// holds 8 outputs, in order (GPTQ; less by one, but in its second version) or as qweight does (AWQ).
struct QuantizedWeight {
  Quantization how;
  std::int64_t in = 0, out = 0;
  const StoredTensor *weights = nullptr, *zeros = nullptr, *scales = nullptr;
  const StoredTensor* order = nullptr;  // g_idx, or null

  std::vector<const StoredTensor*> tensors() const;
  // The weight in f32: [out,in], or [in,out] with inputs first.
  void read(bool inputs_first, float* destination) const;
};

// The tensors of a linear ("model.layers.0.mlp.up_proj"); nothing where there is no qweight. FileError naming file and tensor for a part
// that is missing, of another type or shape, or a group that is not there.
std::optional<QuantizedWeight> find_quantized(const WeightFiles& files, const Quantization& how, const std::string& linear, std::int64_t in,
                                              std::int64_t out);

}  // namespace ppengine::models
