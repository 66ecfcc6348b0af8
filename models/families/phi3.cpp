// Phi-3: Llama with packed projections, a part of a head turned, and longrope. Defaults are those of transformers' Phi3Config.
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {

namespace {

bool is_longrope(const nlohmann::json& type) {
  const auto* text = type.get_ptr<const nlohmann::json::string_t*>();
  return text && (*text == "su" || *text == "yarn");
}

// Older files call longrope "su" or "yarn", and the field for the original length stands beside the others, 4096 where it is missing.
void parse_phi3_rope(const JsonPlace& config, DecoderConfig& out) {
  nlohmann::json fields = config.json();
  if (config.absent("original_max_position_embeddings")) fields["original_max_position_embeddings"] = 4096;
  for (const char* place : {"rope_scaling", "rope_parameters"})
    for (const char* key : {"rope_type", "type"})
      if (auto inner = fields.find(place); inner != fields.end() && inner->is_object())
        if (inner->contains(key) && is_longrope((*inner)[key])) (*inner)[key] = std::string("longrope");
  parse_rope(JsonPlace(fields, config.file()), {.part = "partial_rotary_factor"}, out);
  if (out.rope.scaling != RopeScaling::none && out.rope.scaling != RopeScaling::longrope)
    config.refuse("the rotary scaling is not supported in phi3: longrope is");
}

}  // namespace

DecoderConfig parse_phi3(const JsonPlace& config) {
  refuse_foreign_fields(config, {"sliding_window", "layer_types"});
  DecoderConfig out = parse_decoder(config, {.family = "phi3",
                                             .vocabulary = 32064,
                                             .positions = 4096,
                                             .width = 3072,
                                             .inner = 8192,
                                             .layers = 32,
                                             .heads = 32,
                                             .epsilon = 1e-5,
                                             .bos = 1,
                                             .eos = 32000,
                                             .pad = 32000});
  if (out.activation != Activation::silu) config.at("hidden_act").refuse("is not supported in phi3: silu is");
  parse_phi3_rope(config, out);
  out.projection = Projection::packed;
  out.mlp = MlpKind::packed_gated;
  out.residual_dropout = config.number_or("resid_pdrop", 0.0, 0, 0.999);
  out.names.up = "gate_up_proj";
  if (const auto window = parse_window(config, std::nullopt)) {
    out.window = *window;
    out.windowed.assign(static_cast<std::size_t>(out.layers), true);
  }
  return out;
}

}  // namespace ppengine::models
