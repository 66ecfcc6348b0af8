// Granite: Llama with multipliers of embeddings, residuals, scores and logits. Defaults are those of transformers' GraniteConfig.
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

DecoderConfig parse_granite(const JsonPlace& config) {
  refuse_foreign_fields(config, {"embedding_multiplier", "residual_multiplier", "logits_scaling"});
  DecoderConfig out = parse_decoder(config, {.family = "granite",
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
  const auto multiplier = [&](const char* key) { return config.number_or(key, 1.0, 1e-9, 1e9); };
  out.embedding_multiplier = multiplier("embedding_multiplier");
  out.residual_multiplier = multiplier("residual_multiplier");
  out.attention_scale = multiplier("attention_multiplier");
  out.logits_divisor = multiplier("logits_scaling");
  return out;
}

}  // namespace ppengine::models
