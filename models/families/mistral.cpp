// Mistral: Llama with a window in all layers. Defaults are those of transformers' MistralConfig.
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

DecoderConfig parse_mistral(const JsonPlace& config) {
  refuse_foreign_fields(config, {"sliding_window", "layer_types"});
  DecoderConfig out = parse_decoder(config, {.family = "mistral",
                                             .vocabulary = 32000,
                                             .positions = 131072,
                                             .width = 4096,
                                             .inner = 14336,
                                             .layers = 32,
                                             .heads = 32,
                                             .kv_heads = 8,
                                             .bos = 1,
                                             .eos = 2});
  parse_rope(config, {}, out);
  if (const auto window = parse_window(config, 4096)) {  // layer_types is passed over, as in transformers
    out.window = *window;
    out.windowed.assign(static_cast<std::size_t>(out.layers), true);
  }
  return out;
}

}  // namespace ppengine::models
