// config.json of the gpt2 family. Defaults are those of transformers' GPT2Config.
#include <fmt/core.h>

#include <ppengine/models/families/config_parse.hpp>

namespace ppengine::models {
namespace {

// GPT2Config answers to two names for its sizes; both may stand in a file, but they must agree.
std::int64_t size_of(const JsonPlace& config, const char* key, const char* alias, std::int64_t otherwise, std::int64_t high) {
  const std::int64_t value = config.integer_or(key, config.integer_or(alias, otherwise, 1, high), 1, high);
  if (config.integer_or(alias, value, 1, high) != value) config.at(alias).refuse(fmt::format("contradicts {} = {}", key, value));
  return value;
}

}  // namespace

Gpt2Config parse_gpt2(const JsonPlace& config) {
  refuse_foreign_fields(config);
  Gpt2Config out;
  out.vocabulary = config.integer_or("vocab_size", 50257, 1, max_vocabulary);
  out.positions = size_of(config, "n_positions", "max_position_embeddings", 1024, max_positions);
  out.width = size_of(config, "n_embd", "hidden_size", 768, max_width);
  out.layers = size_of(config, "n_layer", "num_hidden_layers", 12, max_layers);
  out.heads = size_of(config, "n_head", "num_attention_heads", 12, max_width);
  if (out.width % out.heads != 0) config.refuse(fmt::format("n_embd = {} cannot be divided by n_head = {}", out.width, out.heads));
  out.inner = config.integer_or("n_inner", 4 * out.width, 1, 4 * max_inner);
  out.activation = parse_activation(config, "activation_function", "gelu_new");
  out.layer_norm_epsilon = config.number_or("layer_norm_epsilon", 1e-5, 0, 1);
  out.embedding_dropout = config.number_or("embd_pdrop", 0.1, 0, 0.999);
  out.residual_dropout = config.number_or("resid_pdrop", 0.1, 0, 0.999);
  out.attention_dropout = config.number_or("attn_pdrop", 0.1, 0, 0.999);
  out.scale_attention = config.boolean_or("scale_attn_weights", true);
  out.scale_attention_by_inverse_layer = config.boolean_or("scale_attn_by_inverse_layer_idx", false);
  config.boolean_or("reorder_and_upcast_attn", false);  // the same result: attention is computed in f32 here anyway
  out.tied_head = config.boolean_or("tie_word_embeddings", true);
  out.initializer_range = config.number_or("initializer_range", 0.02, 0, 1e6);
  out.ids.bos = parse_ids(config, "bos_token_id", {50256}, out.vocabulary);
  out.ids.eos = parse_ids(config, "eos_token_id", {50256}, out.vocabulary);
  return out;
}

nlohmann::json gpt2_json(const Gpt2Config& config) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"vocab_size", config.vocabulary},
          {"n_positions", config.positions},
          {"n_ctx", config.positions},
          {"n_embd", config.width},
          {"n_layer", config.layers},
          {"n_head", config.heads},
          {"n_inner", config.inner == 4 * config.width ? nlohmann::json(nullptr) : nlohmann::json(config.inner)},
          {"activation_function", activation_name(config.activation)},
          {"layer_norm_epsilon", config.layer_norm_epsilon},
          {"embd_pdrop", config.embedding_dropout},
          {"resid_pdrop", config.residual_dropout},
          {"attn_pdrop", config.attention_dropout},
          {"scale_attn_weights", config.scale_attention},
          {"scale_attn_by_inverse_layer_idx", config.scale_attention_by_inverse_layer},
          {"reorder_and_upcast_attn", false},
          {"tie_word_embeddings", config.tied_head},
          {"initializer_range", config.initializer_range},
          {"bos_token_id", ids_json(config.ids.bos)},
          {"eos_token_id", ids_json(config.ids.eos)},
          {"use_cache", true}};
}

}  // namespace ppengine::models
