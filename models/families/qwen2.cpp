// Qwen2: Llama with biases on queries, keys and values, and windows from a layer on. Defaults are those of transformers' Qwen2Config.
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

// Qwen2 and Qwen3: a window counts only with use_sliding_window, and from layer max_window_layers on.
void parse_qwen_windows(const JsonPlace& config, DecoderConfig& out) {
  const bool uses = config.boolean_or("use_sliding_window", false);
  const auto window = uses ? parse_window(config, 4096) : std::nullopt;
  const std::int64_t first = config.integer_or("max_window_layers", 28, 0, max_layers);
  parse_windows(config, window, [&](std::int64_t layer) { return window && layer >= first; }, out);
}

DecoderConfig parse_qwen2(const JsonPlace& config) {
  refuse_foreign_fields(config, {"sliding_window", "layer_types"});
  DecoderConfig out = parse_decoder(config, {.family = "qwen2",
                                             .vocabulary = 151936,
                                             .positions = 32768,
                                             .width = 4096,
                                             .inner = 22016,
                                             .layers = 32,
                                             .heads = 32,
                                             .kv_heads = 32});
  parse_rope(config, {}, out);
  out.qkv_bias = true;
  parse_qwen_windows(config, out);
  return out;
}

}  // namespace ppengine::models
