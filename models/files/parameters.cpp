// The parameters of a model by Hugging Face's names, and whether the files of a folder are exactly those.
#include <ppengine/models/files/parameters.hpp>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstring>
#include <unordered_set>

#include <ppengine/base/error.hpp>

namespace ppengine::models {
namespace {

std::vector<Parameter> gpt2_parameters(const Gpt2Config& c) {
  std::vector<Parameter> out;
  const auto add = [&](std::string name, std::vector<std::int64_t> shape, Init init) {
    out.push_back({std::move(name), std::move(shape), init});
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {c.width}, Init::ones);
    add(name + ".bias", {c.width}, Init::zeros);
  };
  const auto conv = [&](const std::string& name, std::int64_t in, std::int64_t outputs, Init init) {  // weight [in, out]
    add(name + ".weight", {in, outputs}, init);
    add(name + ".bias", {outputs}, Init::zeros);
  };
  add("transformer.wte.weight", {c.vocabulary, c.width}, Init::normal);
  add("transformer.wpe.weight", {c.positions, c.width}, Init::normal);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = fmt::format("transformer.h.{}.", i);
    norm(layer + "ln_1");
    conv(layer + "attn.c_attn", c.width, 3 * c.width, Init::normal);
    conv(layer + "attn.c_proj", c.width, c.width, Init::normal_residual);
    norm(layer + "ln_2");
    conv(layer + "mlp.c_fc", c.width, c.inner, Init::normal);
    conv(layer + "mlp.c_proj", c.inner, c.width, Init::normal_residual);
  }
  norm("transformer.ln_f");
  if (!c.tied_head) add("lm_head.weight", {c.vocabulary, c.width}, Init::normal);
  return out;
}

std::vector<Parameter> llama_parameters(const LlamaConfig& c) {
  std::vector<Parameter> out;
  const auto linear = [&](const std::string& name, std::int64_t outputs, std::int64_t in, bool bias) {  // weight [out, in]
    out.push_back({name + ".weight", {outputs, in}, Init::normal});
    if (bias) out.push_back({name + ".bias", {outputs}, Init::zeros});
  };
  const auto norm = [&](const std::string& name) { out.push_back({name + ".weight", {c.width}, Init::ones}); };
  linear("model.embed_tokens", c.vocabulary, c.width, false);
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    norm(layer + "input_layernorm");
    linear(layer + "self_attn.q_proj", c.heads * c.head_size, c.width, c.attention_bias);
    linear(layer + "self_attn.k_proj", c.kv_heads * c.head_size, c.width, c.attention_bias);
    linear(layer + "self_attn.v_proj", c.kv_heads * c.head_size, c.width, c.attention_bias);
    linear(layer + "self_attn.o_proj", c.width, c.heads * c.head_size, c.attention_bias);
    norm(layer + "post_attention_layernorm");
    linear(layer + "mlp.gate_proj", c.inner, c.width, c.mlp_bias);
    linear(layer + "mlp.up_proj", c.inner, c.width, c.mlp_bias);
    linear(layer + "mlp.down_proj", c.width, c.inner, c.mlp_bias);
  }
  norm("model.norm");
  if (!c.tied_head) linear("lm_head", c.vocabulary, c.width, false);
  return out;
}

// Buffers, not parameters, that older versions of transformers saved: causal masks and rotary frequencies.
bool is_old_buffer(const std::string& name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name.ends_with(".rotary_emb.inv_freq");
}

}  // namespace

std::int64_t Parameter::elements() const {
  std::int64_t count = 1;
  for (std::int64_t extent : shape) count *= extent;  // cannot overflow: config.json's sizes are limited
  return count;
}

std::vector<Parameter> list_parameters(const ModelConfig& config) {
  return config.gpt2() ? gpt2_parameters(*config.gpt2()) : llama_parameters(*config.llama());
}

std::int64_t count_parameters(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const Parameter& parameter : list_parameters(config)) count += parameter.elements();
  return count;
}

std::vector<const StoredTensor*> match_parameters(const ModelConfig& config, const WeightFiles& files) {
  const std::string prefix = config.gpt2() ? "transformer." : "model.";
  const auto find = [&](const std::string& name) {
    const StoredTensor* tensor = files.find(name);
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
    if (!tensor)
      throw FileError(fmt::format("{}: tensor '{}' is missing, which config.json asks for", files.path().string(), parameter.name));
    check(*tensor, parameter.shape);
    found.push_back(tensor);
    known.insert(tensor);
  }
  if (config.tied_head())
    if (const StoredTensor* head = files.find("lm_head.weight")) {
      check(*head, parameters.front().shape);
      const StoredTensor& embedding = *found.front();
      if (head->type == embedding.type && std::memcmp(head->data, embedding.data, head->bytes) != 0)
        throw FileError(fmt::format(
            "{}: tensor 'lm_head.weight' differs from '{}', to which config.json ties it: set tie_word_embeddings to false there, "
            "or leave the tensor out",
            head->file, embedding.name));
      known.insert(head);
    }
  for (const StoredTensor& tensor : files.tensors())
    if (!known.contains(&tensor) && !is_old_buffer(tensor.name))
      throw FileError(fmt::format("{}: tensor '{}' is unexpected: a {} model with this config.json has none of this name", tensor.file,
                                  tensor.name, config.family_name()));
  return found;
}

}  // namespace ppengine::models
