// The parameters of a model by Hugging Face's names, and whether the files of a folder are exactly those.
#include <ppengine/models/files/parameters.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_set>

#include <ppengine/base/error.hpp>
#include <ppengine/models/build.hpp>

namespace ppengine::models {
namespace {

// Buffers, not parameters, that older versions of transformers saved: causal masks and rotary frequencies.
bool is_old_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".attention.bias") ||
         name.ends_with(".attention.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

// AutoGPTQ writes a bias for each linear that it has quantized, of zeros where the model has none.
const StoredTensor* zero_bias(const WeightFiles& files, const std::string& qweight) {
  const StoredTensor* const bias = files.find(qweight.substr(0, qweight.rfind('.')) + ".bias");
  if (!bias) return nullptr;
  return std::all_of(bias->data, bias->data + bias->bytes, [](std::byte one) { return one == std::byte{0}; }) ? bias : nullptr;
}

}  // namespace

std::int64_t Parameter::elements() const {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;  // cannot overflow: config.json's sizes are limited
  return count;
}

std::vector<Parameter> list_parameters(const ModelConfig& config) {
  std::vector<Parameter> list;
  const auto graph = build_graph(config);
  for (const engine::ParameterInfo& info : graph->parameters())
    list.push_back({info.name,
                    {info.shape.dims().begin(), info.shape.dims().end()},
                    info.linear_weight && info.file_layout != ops::WeightLayout::out_in});
  return list;
}

std::int64_t count_parameters(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const Parameter& parameter : list_parameters(config)) count += parameter.elements();
  return count;
}

std::optional<QuantizedWeight> find_quantized(const ModelConfig& config, const WeightFiles& files, const Parameter& parameter) {
  constexpr std::string_view suffix = ".weight";
  if (!config.quantization || parameter.shape.size() != 2 || !parameter.name.ends_with(suffix)) return {};
  const std::string linear = parameter.name.substr(0, parameter.name.size() - suffix.size());
  return find_quantized(files, *config.quantization, linear, parameter.shape[parameter.inputs_first ? 0 : 1],
                        parameter.shape[parameter.inputs_first ? 1 : 0]);
}

std::vector<const StoredTensor*> match_parameters(const ModelConfig& config, const WeightFiles& files) {
  const std::string prefix = config.gpt2() ? "transformer." : config.decoder()->names.model + std::string(".");
  const std::string head_name = (config.gpt2() ? "lm_head" : config.decoder()->names.head) + std::string(".weight");
  const auto find = [&](const std::string& name) {
    const StoredTensor* tensor = files.find(name);
    if (!tensor && name == head_name) return files.find("lm_head.weight");  // transformers 5 has one name for all heads
    return !tensor && name.starts_with(prefix) ? files.find(name.substr(prefix.size())) : tensor;
  };
  const auto check = [](const StoredTensor& tensor, const std::vector<std::int64_t>& shape) {
    if (tensor.shape != shape)
      throw FileError(fmt::format("{}: tensor '{}' has shape [{}], but config.json asks for [{}]", tensor.file, tensor.name,
                                  fmt::join(tensor.shape, ", "), fmt::join(shape, ", ")));
    if (tensor.type != StoredType::f32 && tensor.type != StoredType::f16 && tensor.type != StoredType::bf16)
      throw FileError(
          fmt::format("{}: tensor '{}' has type {}; weights must be F32, F16 or BF16", tensor.file, tensor.name, tensor.type_name));
  };

  std::vector<const StoredTensor*> found;
  std::unordered_set<const StoredTensor*> known;
  const std::vector<Parameter> parameters = list_parameters(config);
  for (const Parameter& parameter : parameters) {
    const StoredTensor* tensor = find(parameter.name);
    if (const auto quantized = tensor ? std::nullopt : find_quantized(config, files, parameter)) {
      found.push_back(quantized->weights);
      for (const StoredTensor* one : quantized->tensors()) known.insert(one);
      if (const StoredTensor* bias = zero_bias(files, quantized->weights->name)) known.insert(bias);
      continue;
    }
    if (!tensor)
      throw FileError(fmt::format("{}: tensor '{}' is missing, which config.json asks for", files.path().string(), parameter.name));
    check(*tensor, parameter.shape);
    found.push_back(tensor);
    known.insert(tensor);
  }
  if (config.tied_head())
    if (const StoredTensor* head = find(head_name)) {
      check(*head, parameters.front().shape);
      const StoredTensor& embedding = *found.front();
      if (head->type == embedding.type && std::memcmp(head->data, embedding.data, head->bytes) != 0)
        throw FileError(
            fmt::format("{}: tensor '{}' differs from '{}', to which config.json ties it: set tie_word_embeddings to false there, "
                        "or leave the tensor out",
                        head->file, head->name, embedding.name));
      known.insert(head);
    }
  for (const StoredTensor& tensor : files.tensors())
    if (!known.contains(&tensor) && !is_old_buffer(tensor.name))
      throw FileError(fmt::format("{}: tensor '{}' is unexpected: a {} model with this config.json has none of this name", tensor.file,
                                  tensor.name, config.family_name()));
  return found;
}

}  // namespace ppengine::models
