// The parameters of a model by Hugging Face's names, and whether the files of a folder are exactly those.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ppengine/models/config.hpp>
#include <ppengine/models/files/quantized.hpp>
#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {

struct Parameter {
  std::string name;  // as in a saved causal model: "transformer.h.0.attn.c_attn.weight", "lm_head.weight"
  std::vector<std::int64_t> shape;
  bool inputs_first = false;  // a linear's weight as [in,out]: GPT-2's
  std::int64_t elements() const;
};

// In the model's order, a tied head left out (it is the embedding).
std::vector<Parameter> list_parameters(const ModelConfig& config);
std::int64_t count_parameters(const ModelConfig& config);

// A linear's weight that the folder stores in 4 bits.
std::optional<QuantizedWeight> find_quantized(const ModelConfig& config, const WeightFiles& files, const Parameter& parameter);

// The tensor that holds each parameter (of one in 4 bits its qweight, files/quantized.hpp), in the order of list_parameters. Names with and
// without the leading "transformer.", "model." or "gpt_neox." are accepted, and buffers that old files carry are passed over. A tied head
// may be in the file too if its shape fits. FileError naming the file and the tensor for what is missing, unexpected or of another shape.
std::vector<const StoredTensor*> match_parameters(const ModelConfig& config, const WeightFiles& files);

}  // namespace ppengine::models
