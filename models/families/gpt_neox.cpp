// GPT-NeoX: layer norm, biases, a packed projection by head, a part of a head turned. Defaults are those of GPTNeoXConfig.
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

DecoderConfig parse_gpt_neox(const JsonPlace& config) {
  refuse_foreign_fields(config);
  DecoderConfig out = parse_decoder(config, {.family = "gpt_neox",
                                             .vocabulary = 50432,
                                             .positions = 2048,
                                             .width = 6144,
                                             .inner = 24576,
                                             .layers = 44,
                                             .heads = 64,
                                             .activation = "gelu",
                                             .epsilon_key = "layer_norm_eps",
                                             .epsilon = 1e-5,
                                             .bos = 0,
                                             .eos = 2});
  if (out.kv_heads != out.heads) config.at("num_key_value_heads").refuse("is not supported: every head has keys of its own");
  if (out.head_size * out.heads != out.width) config.at("head_dim").refuse("is not supported: it is hidden_size / num_attention_heads");
  parse_rope(config, {.theta = "rotary_emb_base", .part = "rotary_pct", .part_otherwise = 0.25}, out);
  out.layer_norm = out.mlp_bias = true;
  out.qkv_bias = out.output_bias = config.boolean_or("attention_bias", true);
  out.parallel_residual = config.boolean_or("use_parallel_residual", true);
  out.embedding_dropout = out.residual_dropout = config.number_or("hidden_dropout", 0.0, 0, 0.999);
  out.projection = Projection::packed_by_head;
  out.mlp = MlpKind::plain;
  out.padding = -1;  // embed_in trains all tokens
  out.names.model = "gpt_neox";
  out.names.embedding = "embed_in";
  out.names.attention = "attention";
  out.names.packed = "query_key_value";
  out.names.output = "dense";
  out.names.up = "dense_h_to_4h";
  out.names.down = "dense_4h_to_h";
  out.names.final_norm = "final_layer_norm";
  out.names.head = "embed_out";
  return out;
}

}  // namespace ppengine::models
