// Qwen3: Qwen2 with a norm of every query and key head, and biases where asked for. Defaults are those of transformers' Qwen3Config.
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

DecoderConfig parse_qwen3(const JsonPlace& config) {
  refuse_foreign_fields(config, {"sliding_window", "layer_types"});
  DecoderConfig out = parse_decoder(config, {.family = "qwen3",
                                             .vocabulary = 151936,
                                             .positions = 32768,
                                             .width = 4096,
                                             .inner = 22016,
                                             .layers = 32,
                                             .heads = 32,
                                             .kv_heads = 32,
                                             .head_size = 128});
  parse_rope(config, {}, out);
  out.qkv_bias = out.output_bias = config.boolean_or("attention_bias", false);
  out.head_norm = HeadNorm::each;
  parse_qwen_windows(config, out);
  return out;
}

}  // namespace ppengine::models
