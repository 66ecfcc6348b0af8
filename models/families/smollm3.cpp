// SmolLM3: Llama with layers without rotary positions, every fourth unless said otherwise. Defaults are those of SmolLM3Config.
#include <fmt/core.h>

#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

DecoderConfig parse_smollm3(const JsonPlace& config) {
  refuse_foreign_fields(config, {"no_rope_layers", "sliding_window", "layer_types"});
  DecoderConfig out = parse_decoder(config, {.family = "smollm3",
                                             .vocabulary = 128256,
                                             .positions = 32768,
                                             .width = 2048,
                                             .inner = 11008,
                                             .layers = 36,
                                             .heads = 16,
                                             .kv_heads = 4,
                                             .tied = true,
                                             .bos = 128000,
                                             .eos = 128001,
                                             .pad = 128004});
  parse_rope(config, {.theta_otherwise = 2e6}, out);
  out.qkv_bias = out.output_bias = config.boolean_or("attention_bias", false);
  out.mlp_bias = config.boolean_or("mlp_bias", false);
  const auto list = config.find("no_rope_layers");  // 1: the layer has rotary positions, whatever the name says
  if (list && static_cast<std::int64_t>(list->expect_array().size()) < out.layers)
    list->refuse(fmt::format("names {} layers, and the model has {}", list->size(), out.layers));
  const std::int64_t interval = config.integer_or("no_rope_layer_interval", 4, 1, max_layers);
  for (std::int64_t layer = 0; layer < out.layers; ++layer)
    out.no_rotary.push_back(list ? list->element(static_cast<std::size_t>(layer)).integer(0, 1) == 0 : (layer + 1) % interval == 0);
  const bool uses = config.boolean_or("use_sliding_window", false);
  const auto window = uses ? parse_window(config, std::nullopt) : std::nullopt;
  parse_windows(config, window, [&](std::int64_t layer) { return window && !out.has_rotary(layer); }, out);
  return out;
}

}  // namespace ppengine::models
