// Gemma 3: Gemma 2 with norms of heads in place of caps, five layers with a window to one without, and rotary positions for either.
// Defaults are those of Gemma3TextConfig.
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {
namespace {

// rope_parameters has a set for either kind of layer. Older files: rope_theta and rope_scaling for layers without a window, and
// rope_local_base_freq for those with one.
void parse_gemma3_rope(const JsonPlace& config, DecoderConfig& out) {
  if (out.head_size % 2 != 0) config.refuse("the head size must be even for rotary embedding");
  const double theta = config.number_or("rope_theta", 1e6, 1e-3, 1e15), local = config.number_or("rope_local_base_freq", 1e4, 1e-3, 1e15);
  out.has_local_rope = true;
  out.rope.theta = theta;
  out.local_rope.theta = local;
  if (const auto both = config.find("rope_parameters")) {
    for (const auto& [key, value] : both->expect_object().json().items())
      if (key != "full_attention" && key != "sliding_attention" && !value.is_null())
        both->at(key.c_str()).refuse("is not supported: full_attention and sliding_attention are");
    if (const auto inner = both->find("full_attention")) out.rope = parse_rope_scaling(*inner, config, theta, out);
    if (const auto inner = both->find("sliding_attention")) out.local_rope = parse_rope_scaling(*inner, config, local, out);
  }
  if (const auto scaling = config.find("rope_scaling")) out.rope = parse_rope_scaling(*scaling, config, out.rope.theta, out);
}

}  // namespace

DecoderConfig parse_gemma3_text(const JsonPlace& config) {
  DecoderConfig out = parse_gemma(config, "gemma3_text", 262208, 131072);
  out.head_norm = HeadNorm::each;
  out.logits_cap = config.number_or("final_logit_softcapping", 0, 0, 1e9);  // attn_logit_softcapping is passed over, as in transformers
  const std::int64_t pattern = config.integer_or("sliding_window_pattern", 6, 1, max_layers);
  parse_windows(config, parse_window(config, 4096), [&](std::int64_t layer) { return (layer + 1) % pattern != 0; }, out);
  parse_gemma3_rope(config, out);
  return out;
}

}  // namespace ppengine::models
