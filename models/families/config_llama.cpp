// config.json of the llama family. Defaults are those of transformers' LlamaConfig.
#include <fmt/core.h>

#include <ppengine/models/families/config_parse.hpp>

namespace ppengine::models {
namespace {

// Both spellings: rope_theta beside rope_scaling, and transformers 5's rope_parameters with everything inside. As there,
// rope_scaling comes first if both are given, and a theta inside comes before one beside it.
RopeConfig parse_rope(const JsonPlace& config, std::int64_t positions) {
  RopeConfig rope;
  if (const auto factor = config.find("partial_rotary_factor"); factor && factor->number(0, 1) != 1.0)
    factor->refuse("is not supported: rotary embedding of whole heads is");
  rope.theta = config.number_or("rope_theta", 10000.0, 1e-3, 1e15);
  auto inner = config.find("rope_scaling");
  if (!inner || inner->json().empty()) inner = config.find("rope_parameters");
  if (!inner || inner->expect_object().json().empty()) return rope;

  for (const auto& [key, value] : inner->json().items())
    if (value.is_object()) inner->at(key.c_str()).refuse("is not supported: the same rotary embedding for all layers is");
  rope.theta = inner->number_or("rope_theta", rope.theta, 1e-3, 1e15);
  if (const auto factor = inner->find("partial_rotary_factor"); factor && factor->number(0, 1) != 1.0)
    factor->refuse("is not supported: rotary embedding of whole heads is");
  const char* key = inner->absent("rope_type") ? "type" : "rope_type";
  const std::string type = inner->string_or(key, "default");
  if (type == "default") return rope;
  if (type == "linear")
    rope.scaling = RopeScaling::linear;
  else if (type == "dynamic")
    rope.scaling = RopeScaling::dynamic;
  else if (type == "llama3")
    rope.scaling = RopeScaling::llama3;
  else
    inner->at(key).refuse(fmt::format("is '{}': default, linear, dynamic and llama3 are supported", type));

  rope.factor = inner->at("factor").number(1e-6, 1e9);
  if (rope.scaling == RopeScaling::llama3) {
    rope.low_frequency_factor = inner->at("low_freq_factor").number(1e-6, 1e9);
    rope.high_frequency_factor = inner->at("high_freq_factor").number(1e-6, 1e9);
    if (rope.high_frequency_factor <= rope.low_frequency_factor)
      inner->at("high_freq_factor").refuse("must be larger than low_freq_factor");
    rope.original_positions = inner->integer_or("original_max_position_embeddings", positions, 1, max_positions);
    rope.original_positions = config.integer_or("original_max_position_embeddings", rope.original_positions, 1, max_positions);
  }
  return rope;
}

nlohmann::json rope_json(const RopeConfig& rope) {
  nlohmann::json out = {{"rope_theta", rope.theta}, {"rope_type", "default"}};
  if (rope.scaling == RopeScaling::none) return out;
  out["rope_type"] = rope.scaling == RopeScaling::linear ? "linear" : rope.scaling == RopeScaling::dynamic ? "dynamic" : "llama3";
  out["factor"] = rope.factor;
  if (rope.scaling == RopeScaling::llama3) {
    out["low_freq_factor"] = rope.low_frequency_factor;
    out["high_freq_factor"] = rope.high_frequency_factor;
    out["original_max_position_embeddings"] = rope.original_positions;
  }
  return out;
}

}  // namespace

LlamaConfig parse_llama(const JsonPlace& config) {
  refuse_foreign_fields(config);
  LlamaConfig out;
  out.vocabulary = config.integer_or("vocab_size", 32000, 1, max_vocabulary);
  out.positions = config.integer_or("max_position_embeddings", 2048, 1, max_positions);
  out.width = config.integer_or("hidden_size", 4096, 1, max_width);
  out.inner = config.integer_or("intermediate_size", 11008, 1, max_inner);
  out.layers = config.integer_or("num_hidden_layers", 32, 1, max_layers);
  out.heads = config.integer_or("num_attention_heads", 32, 1, 1 << 14);
  out.kv_heads = config.integer_or("num_key_value_heads", out.heads, 1, out.heads);
  if (out.heads % out.kv_heads != 0)
    config.refuse(fmt::format("num_attention_heads = {} cannot be divided by num_key_value_heads = {}", out.heads, out.kv_heads));
  if (config.absent("head_dim") && out.width % out.heads != 0)
    config.refuse(fmt::format("hidden_size = {} cannot be divided by num_attention_heads = {}", out.width, out.heads));
  out.head_size = config.integer_or("head_dim", out.width / out.heads, 1, 1 << 14);
  if (out.heads * out.head_size > max_inner)
    config.refuse(fmt::format("num_attention_heads = {} with head_dim = {} is more than {}", out.heads, out.head_size, max_inner));
  if (out.head_size % 2 != 0) config.refuse(fmt::format("the head size {} must be even for rotary embedding", out.head_size));
  out.activation = parse_activation(config, "hidden_act", "silu");
  out.rms_norm_epsilon = config.number_or("rms_norm_eps", 1e-6, 0, 1);
  out.rope = parse_rope(config, out.positions);
  if (out.rope.scaling == RopeScaling::dynamic && out.head_size <= 2) config.refuse("dynamic rope scaling needs a head size above 2");
  out.attention_bias = config.boolean_or("attention_bias", false);
  out.mlp_bias = config.boolean_or("mlp_bias", false);
  out.tied_head = config.boolean_or("tie_word_embeddings", false);
  out.attention_dropout = config.number_or("attention_dropout", 0.0, 0, 0.999);
  out.initializer_range = config.number_or("initializer_range", 0.02, 0, 1e6);
  out.ids.bos = parse_ids(config, "bos_token_id", {1}, out.vocabulary);
  out.ids.eos = parse_ids(config, "eos_token_id", {2}, out.vocabulary);
  return out;  // pretraining_tp is passed over: it cuts products into pieces, with the same result
}

nlohmann::json llama_json(const LlamaConfig& config) {
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
                        {"rms_norm_eps", config.rms_norm_epsilon},
                        {"rope_parameters", rope},
                        {"rope_theta", config.rope.theta},  // what transformers before 5 read
                        {"attention_bias", config.attention_bias},
                        {"mlp_bias", config.mlp_bias},
                        {"tie_word_embeddings", config.tied_head},
                        {"attention_dropout", config.attention_dropout},
                        {"initializer_range", config.initializer_range},
                        {"bos_token_id", ids_json(config.ids.bos)},
                        {"eos_token_id", ids_json(config.ids.eos)},
                        {"use_cache", true}};
  if (config.rope.scaling != RopeScaling::none) out["rope_scaling"] = rope;
  return out;
}

}  // namespace ppengine::models
