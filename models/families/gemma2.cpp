// Gemma 2: norms with 1 + weight around attention and MLP, caps, a window in every second layer. Defaults are those of Gemma2Config.
#include <cmath>

#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

DecoderConfig parse_gemma(const JsonPlace& config, const char* family, std::int64_t vocabulary, std::int64_t positions) {
  refuse_foreign_fields(config,
                        {"attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar", "sliding_window", "layer_types"});
  DecoderConfig out = parse_decoder(config, {.family = family,
                                             .vocabulary = vocabulary,
                                             .positions = positions,
                                             .width = 2304,
                                             .inner = 9216,
                                             .layers = 26,
                                             .heads = 8,
                                             .kv_heads = 4,
                                             .head_size = 256,
                                             .activation_key = "hidden_activation",
                                             .activation = "gelu_pytorch_tanh",
                                             .tied = true,
                                             .bos = 2,
                                             .eos = 1,
                                             .pad = 0});
  out.qkv_bias = out.output_bias = config.boolean_or("attention_bias", false);
  out.norm_adds_one = true;
  out.norm_place = NormPlace::both;
  out.attention_scale = std::pow(config.number_or("query_pre_attn_scalar", 256, 1e-6, 1e9), -0.5);
  out.embedding_multiplier = std::sqrt(static_cast<double>(out.width));
  return out;
}

DecoderConfig parse_gemma2(const JsonPlace& config) {
  DecoderConfig out = parse_gemma(config, "gemma2", 256000, 8192);
  parse_rope(config, {}, out);
  const auto cap = [&](const char* key, double otherwise) {  // null: none
    return config.json().contains(key) && config.absent(key) ? 0.0 : config.number_or(key, otherwise, 1e-6, 1e9);
  };
  out.score_cap = cap("attn_logit_softcapping", 50);
  out.logits_cap = cap("final_logit_softcapping", 30);
  parse_windows(config, parse_window(config, 4096), [](std::int64_t layer) { return layer % 2 == 0; }, out);
  return out;
}

}  // namespace ppengine::models
