// OLMo 2: Llama with norms behind attention and MLP, and norms of whole queries and keys. Defaults are those of Olmo2Config.
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

DecoderConfig parse_olmo2(const JsonPlace& config) {
  refuse_foreign_fields(config);
  DecoderConfig out = parse_decoder(config, {.family = "olmo2",
                                             .vocabulary = 50304,
                                             .positions = 2048,
                                             .width = 4096,
                                             .inner = 11008,
                                             .layers = 32,
                                             .heads = 32,
                                             .epsilon = 1e-5,
                                             .eos = 50279,
                                             .pad = 1});
  parse_rope(config, {}, out);
  out.qkv_bias = out.output_bias = config.boolean_or("attention_bias", false);
  out.norm_place = NormPlace::after;
  out.head_norm = HeadNorm::whole;
  return out;
}

}  // namespace ppengine::models
