// Llama: rotary positions, RMS norm, grouped key/value heads, gated activation. Defaults are those of transformers' LlamaConfig.
#include <ppengine/base/error.hpp>
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {
namespace {

nlohmann::json rope_json(const RopeConfig& rope) {
  nlohmann::json out = {{"rope_theta", rope.theta}, {"rope_type", "default"}};
  if (rope.scaling == RopeScaling::none) return out;
  constexpr const char* names[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
  out["rope_type"] = names[static_cast<std::size_t>(rope.scaling)];
  out["factor"] = rope.factor;
  if (rope.original_positions > 0) out["original_max_position_embeddings"] = rope.original_positions;
  if (rope.scaling == RopeScaling::llama3) {
    out["low_freq_factor"] = rope.low_frequency_factor;
    out["high_freq_factor"] = rope.high_frequency_factor;
  }
  if (rope.scaling == RopeScaling::yarn || rope.scaling == RopeScaling::longrope) out["attention_factor"] = rope.attention_factor;
  if (rope.scaling == RopeScaling::yarn) {
    out["beta_fast"] = rope.beta_fast;
    out["beta_slow"] = rope.beta_slow;
    out["truncate"] = rope.truncate;
  }
  if (rope.scaling == RopeScaling::longrope) {
    out["short_factor"] = rope.short_factors;
    out["long_factor"] = rope.long_factors;
  }
  return out;
}

}  // namespace

DecoderConfig parse_llama(const JsonPlace& config) {
  refuse_foreign_fields(config);
  DecoderConfig out = parse_decoder(config, {.family = "llama",
                                             .vocabulary = 32000,
                                             .positions = 2048,
                                             .width = 4096,
                                             .inner = 11008,
                                             .layers = 32,
                                             .heads = 32,
                                             .bos = 1,
                                             .eos = 2});
  parse_rope(config, {}, out);
  out.qkv_bias = out.output_bias = config.boolean_or("attention_bias", false);
  out.mlp_bias = config.boolean_or("mlp_bias", false);
  return out;  // pretraining_tp is passed over: it cuts products into pieces, with the same result
}

nlohmann::json llama_json(const DecoderConfig& config) {
  PPENGINE_ASSERT(std::string_view(config.family) == "llama");
  const nlohmann::json rope = rope_json(config.rope);
  nlohmann::json out = {{"architectures", {"LlamaForCausalLM"}},
                        {"model_type", "llama"},
                        {"vocab_size", config.vocabulary},
                        {"max_position_embeddings", config.positions},
                        {"hidden_size", config.width},
                        {"intermediate_size", config.inner},
                        {"num_hidden_layers", config.layers},
                        {"num_attention_heads", config.heads},
                        {"num_key_value_heads", config.kv_heads},
                        {"head_dim", config.head_size},
                        {"hidden_act", activation_name(config.activation)},
                        {"rms_norm_eps", config.norm_epsilon},
                        {"rope_parameters", rope},
                        {"rope_theta", config.rope.theta},  // what transformers before 5 read
                        {"attention_bias", config.qkv_bias},
                        {"mlp_bias", config.mlp_bias},
                        {"tie_word_embeddings", config.tied_head},
                        {"attention_dropout", config.attention_dropout},
                        {"initializer_range", config.initializer_range},
                        {"bos_token_id", ids_json(config.ids.bos)},
                        {"eos_token_id", ids_json(config.ids.eos)},
                        {"use_cache", true}};
  if (config.rope.scaling != RopeScaling::none) out["rope_scaling"] = rope;
  if (config.padding >= 0) out["pad_token_id"] = config.padding;
  return out;
}

}  // namespace ppengine::models
