// Shared by the families' config.json readers.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string_view>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/models/config.hpp>

namespace ppengine::models {

// Limits that no sane model reaches, and under which no product of sizes overflows 63 bits.
inline constexpr std::int64_t max_vocabulary = 1 << 24;
inline constexpr std::int64_t max_positions = 1 << 26;
inline constexpr std::int64_t max_width = 1 << 20;
inline constexpr std::int64_t max_inner = 1 << 22;
inline constexpr std::int64_t max_layers = 10'000;

Gpt2Config parse_gpt2(const JsonPlace& config);
nlohmann::json gpt2_json(const Gpt2Config& config);
nlohmann::json llama_json(const DecoderConfig& config);

Activation parse_activation(const JsonPlace& config, const char* key, const char* otherwise);
const char* activation_name(Activation activation);  // a name that Hugging Face knows
// An id, a list of ids, or null for none; a missing key gives `otherwise`. Each id must be in the vocabulary.
std::vector<std::int32_t> parse_ids(const JsonPlace& config, const char* key, std::vector<std::int32_t> otherwise, std::int64_t vocabulary);
nlohmann::json ids_json(const std::vector<std::int32_t>& ids);
// Fields of other architectures that would change the result: refused by name unless they are neutral or in `known`.
void refuse_foreign_fields(const JsonPlace& config, std::initializer_list<std::string_view> known = {});

// What differs between families in what they begin with where config.json says nothing.
struct DecoderDefaults {
  const char* family;
  std::int64_t vocabulary, positions, width, inner, layers, heads;
  std::int64_t kv_heads = 0;   // 0: as many as heads
  std::int64_t head_size = 0;  // 0: width / heads
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  const char* epsilon_key = "rms_norm_eps";
  double epsilon = 1e-6;
  bool tied = false;
  std::int64_t bos = -1, eos = -1, pad = -1;  // -1: none
};
// Sizes, norms' epsilon, ends of texts, and rotary positions.
DecoderConfig parse_decoder(const JsonPlace& config, const DecoderDefaults& defaults);

// rope_theta beside rope_scaling, or transformers 5's rope_parameters with everything inside. out: sizes are there.
struct RopeKeys {
  const char* theta = "rope_theta";
  const char* part = nullptr;  // the field for the part of a head that is turned, where the family has that
  double part_otherwise = 1.0;
  double theta_otherwise = 10000.0;
};
void parse_rope(const JsonPlace& config, const RopeKeys& keys, DecoderConfig& out);
// One set of rotary parameters. outside: the fields beside it (original_max_position_embeddings).
RopeConfig parse_rope_scaling(const JsonPlace& inner, const JsonPlace& outside, double theta, const DecoderConfig& sizes);

// layer_types where it is there: which layers have a window; otherwise windowed(layer) says it. A window without a size is refused.
void parse_windows(const JsonPlace& config, std::optional<std::int64_t> window, const std::function<bool(std::int64_t layer)>& windowed,
                   DecoderConfig& out);
// A whole number above 0, or null for none; a missing key gives `otherwise`.
std::optional<std::int64_t> parse_window(const JsonPlace& config, std::optional<std::int64_t> otherwise);

}  // namespace ppengine::models
