// What the families' config.json have in common: activations, begin and end tokens, and fields nobody here can honour.
#include <ppengine/models/families/config_parse.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace ppengine::models {
namespace {

struct ActivationName {
  const char* name;
  Activation activation;
};
// The first name of each activation is the one that is written.
constexpr std::array<ActivationName, 10> activations{{{"gelu_new", Activation::gelu_tanh},
                                                      {"gelu_fast", Activation::gelu_tanh},
                                                      {"gelu_pytorch_tanh", Activation::gelu_tanh},
                                                      {"gelu_python_tanh", Activation::gelu_tanh},
                                                      {"gelu_accurate", Activation::gelu_tanh},
                                                      {"gelu", Activation::gelu_erf},
                                                      {"gelu_python", Activation::gelu_erf},
                                                      {"relu", Activation::relu},
                                                      {"silu", Activation::silu},
                                                      {"swish", Activation::silu}}};

}  // namespace

Activation parse_activation(const JsonPlace& config, const char* key, const char* otherwise) {
  const std::string name = config.string_or(key, otherwise);
  for (const auto& known : activations)
    if (name == known.name) return known.activation;
  config.at(key).refuse(fmt::format("'{}' is not supported: gelu_new, gelu, relu and silu are", name));
}

const char* activation_name(Activation activation) {
  return std::find_if(activations.begin(), activations.end(), [&](const auto& known) { return known.activation == activation; })->name;
}

std::vector<std::int32_t> parse_ids(const JsonPlace& config, const char* key, std::vector<std::int32_t> otherwise,
                                    std::int64_t vocabulary) {
  if (!config.json().contains(key)) {
    // Hugging Face's default ids belong to the original vocabularies; a smaller one simply has none.
    std::erase_if(otherwise, [&](std::int32_t id) { return id >= vocabulary; });
    return otherwise;
  }
  const auto field = config.find(key);
  if (!field) return {};
  const auto id_of = [&](const JsonPlace& place) { return static_cast<std::int32_t>(place.integer(-1, INT32_MAX)); };
  std::vector<std::int32_t> ids;
  if (field->json().is_array()) {
    if (field->size() > 1000) field->refuse("lists more than 1000 ids");
    for (std::size_t i = 0; i < field->size(); ++i) ids.push_back(id_of(field->element(i)));
  } else {
    ids.push_back(id_of(*field));
  }
  // Ids that no output can be (-1 stands for none in some files; others were never cleaned up) can never match.
  std::erase_if(ids, [&](std::int32_t id) { return id < 0 || id >= vocabulary; });
  return ids;
}

nlohmann::json ids_json(const std::vector<std::int32_t>& ids) {
  if (ids.empty()) return nullptr;
  if (ids.size() == 1) return ids.front();
  return ids;
}

void refuse_foreign_fields(const JsonPlace& config, std::initializer_list<std::string_view> known) {
  const auto foreign = [&](std::string_view key) { return std::find(known.begin(), known.end(), key) == known.end(); };
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "num_local_experts", "num_experts",
                          "n_routed_experts", "no_rope_layers", "clip_qkv", "attention_chunk_size", "kv_lora_rank", "window_size"})
    if (const auto field = config.find(key); field && foreign(key)) field->refuse("is not supported");
  for (const char* key : {"embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale"})
    if (const auto field = config.find(key); field && foreign(key) && field->number(-1e30, 1e30) != 1.0) field->refuse("is not supported");
  for (const char* key : {"is_encoder_decoder", "add_cross_attention", "qk_norm", "use_qk_norm", "qk_layernorm", "parallel_attn", "alibi",
                          "use_bidirectional_attention"})
    if (config.boolean_or(key, false)) config.at(key).refuse("is not supported");
  if (foreign("sliding_window") && !config.absent("sliding_window") && config.boolean_or("use_sliding_window", true))
    config.at("sliding_window").refuse("is not supported: attention over the whole sequence is");
  if (const auto heads = config.find("pruned_heads"); heads && !heads->json().empty()) heads->refuse("is not supported");
  if (const auto kinds = config.find("layer_types"); kinds && foreign("layer_types")) {
    for (std::size_t i = 0; i < kinds->expect_array().size(); ++i)
      if (const JsonPlace kind = kinds->element(i); kind.string() != "full_attention")
        kind.refuse(fmt::format("is '{}': only full_attention is supported", kind.string()));
  }
}

}  // namespace ppengine::models
