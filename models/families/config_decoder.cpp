// config.json of the families with rotary positions: what they have in common.
#include <fmt/core.h>

#include <ppengine/models/families/config_parse.hpp>

namespace ppengine::models {
namespace {

// Torch counts a negative one from the end; one that no token can be stands for none.
std::int64_t parse_padding(const JsonPlace& config, std::int64_t otherwise, std::int64_t vocabulary) {
  std::int64_t id = otherwise;
  if (config.json().contains("pad_token_id")) {
    const auto field = config.find("pad_token_id");
    if (!field) return -1;
    id = field->integer(-max_vocabulary, INT32_MAX);
    if (id < 0) id += vocabulary;
  }
  return id < 0 || id >= vocabulary ? -1 : id;
}

std::vector<std::int32_t> one_id(std::int64_t id) {
  return id < 0 ? std::vector<std::int32_t>() : std::vector{static_cast<std::int32_t>(id)};
}

}  // namespace

DecoderConfig parse_decoder(const JsonPlace& config, const DecoderDefaults& d) {
  DecoderConfig out;
  out.family = d.family;
  out.vocabulary = config.integer_or("vocab_size", d.vocabulary, 1, max_vocabulary);
  out.positions = config.integer_or("max_position_embeddings", d.positions, 1, max_positions);
  out.width = config.integer_or("hidden_size", d.width, 1, max_width);
  out.inner = config.integer_or("intermediate_size", d.inner, 1, max_inner);
  out.layers = config.integer_or("num_hidden_layers", d.layers, 1, max_layers);
  out.heads = config.integer_or("num_attention_heads", d.heads, 1, 1 << 14);
  // A missing key has the family's default, null as many as heads.
  const bool says = config.json().contains("num_key_value_heads");
  out.kv_heads = config.integer_or("num_key_value_heads", says || d.kv_heads == 0 ? out.heads : d.kv_heads, 1, out.heads);
  if (out.heads % out.kv_heads != 0)
    config.refuse(fmt::format("num_attention_heads = {} cannot be divided by num_key_value_heads = {}", out.heads, out.kv_heads));
  const bool derived = config.absent("head_dim") && (d.head_size == 0 || config.json().contains("head_dim"));
  if (derived && out.width % out.heads != 0)
    config.refuse(fmt::format("hidden_size = {} cannot be divided by num_attention_heads = {}", out.width, out.heads));
  out.head_size = config.integer_or("head_dim", derived ? out.width / out.heads : d.head_size, 1, 1 << 14);
  if (out.heads * out.head_size > max_inner)
    config.refuse(fmt::format("num_attention_heads = {} with head_dim = {} is more than {}", out.heads, out.head_size, max_inner));
  out.activation = parse_activation(config, d.activation_key, d.activation);
  out.norm_epsilon = config.number_or(d.epsilon_key, d.epsilon, 0, 1);
  out.tied_head = config.boolean_or("tie_word_embeddings", d.tied);
  out.attention_dropout = config.number_or("attention_dropout", 0.0, 0, 0.999);
  out.initializer_range = config.number_or("initializer_range", 0.02, 0, 1e6);
  out.padding = parse_padding(config, d.pad, out.vocabulary);
  out.ids.bos = parse_ids(config, "bos_token_id", one_id(d.bos), out.vocabulary);
  out.ids.eos = parse_ids(config, "eos_token_id", one_id(d.eos), out.vocabulary);
  return out;
}

std::optional<std::int64_t> parse_window(const JsonPlace& config, std::optional<std::int64_t> otherwise) {
  if (!config.json().contains("sliding_window")) return otherwise;
  if (config.absent("sliding_window")) return std::nullopt;
  return config.at("sliding_window").integer(1, max_positions);
}

void parse_windows(const JsonPlace& config, std::optional<std::int64_t> window, const std::function<bool(std::int64_t)>& windowed,
                   DecoderConfig& out) {
  const auto kinds = config.find("layer_types");
  if (kinds && static_cast<std::int64_t>(kinds->expect_array().size()) < out.layers)
    kinds->refuse(fmt::format("names {} layers, and the model has {}", kinds->size(), out.layers));
  bool any = false;
  for (std::int64_t layer = 0; layer < out.layers; ++layer) {
    bool has = !kinds && windowed(layer);
    if (kinds) {
      const JsonPlace kind = kinds->element(static_cast<std::size_t>(layer));
      has = kind.string() == "sliding_attention";
      if (!has && kind.string() != "full_attention")
        kind.refuse(fmt::format("is '{}': full_attention and sliding_attention are supported", kind.string()));
    }
    out.windowed.push_back(has);
    any |= has;
  }
  if (!any) out.windowed.clear();
  if (any && !window) config.refuse("there are layers with sliding attention, and sliding_window does not say how many tokens they see");
  if (any) out.window = *window;
}

}  // namespace ppengine::models
