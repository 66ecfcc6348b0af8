// config.json of the model families: every field that changes the result, with Hugging Face's defaults.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace ppengine::models {

// gelu_tanh is Hugging Face's gelu_new, gelu_fast and gelu_pytorch_tanh (one formula); gelu_erf is its gelu.
enum class Activation { gelu_tanh, gelu_erf, relu, silu };

// The tokens that begin and end a text. Empty: the model has none.
struct SpecialIds {
  std::vector<std::int32_t> bos;
  std::vector<std::int32_t> eos;
};

struct Gpt2Config {
  std::int64_t vocabulary = 50257;
  std::int64_t positions = 1024;
  std::int64_t width = 768;
  std::int64_t layers = 12;
  std::int64_t heads = 12;
  std::int64_t inner = 3072;
  Activation activation = Activation::gelu_tanh;
  double layer_norm_epsilon = 1e-5;
  double embedding_dropout = 0.1;
  double residual_dropout = 0.1;
  double attention_dropout = 0.1;
  bool scale_attention = true;                    // by 1 / sqrt(head size)
  bool scale_attention_by_inverse_layer = false;  // and by 1 / (layer + 1)
  bool tied_head = true;
  double initializer_range = 0.02;
  SpecialIds ids{{50256}, {50256}};
};

enum class RopeScaling { none, linear, dynamic, llama3, yarn, longrope };

struct RopeConfig {
  RopeScaling scaling = RopeScaling::none;
  double theta = 10000.0;
  double factor = 1.0;                  // linear, dynamic, llama3, yarn
  double low_frequency_factor = 1.0;    // llama3
  double high_frequency_factor = 4.0;   // llama3
  std::int64_t original_positions = 0;  // llama3, yarn, longrope
  double attention_factor = 1.0;        // of cosines and sines: yarn, longrope
  double beta_fast = 32.0;              // yarn
  double beta_slow = 1.0;
  bool truncate = true;
  std::vector<float> short_factors, long_factors;  // longrope: up to original_positions tokens, and above
};

enum class NormPlace {
  before,  // x + f(norm(x))
  after,   // x + norm(f(x))
  both,    // x + norm(f(norm(x)))
};
// The norm of queries and keys, before rotary embedding: of each head with a weight for all of them, or of the whole projection.
enum class HeadNorm { none, each, whole };
enum class Projection {
  apart,
  packed,
  packed_by_head
};  // queries, keys and values: three linears, one, or one with a head's three together
enum class MlpKind { gated, packed_gated, plain };  // packed: gate and up in one linear

// What Hugging Face calls the modules where families differ.
struct DecoderNames {
  const char* model = "model";
  const char* embedding = "embed_tokens";
  const char* attention = "self_attn";
  const char* packed = "qkv_proj";
  const char* output = "o_proj";
  const char* up = "up_proj";
  const char* down = "down_proj";
  const char* final_norm = "norm";
  const char* head = "lm_head";
};

// A decoder with rotary positions: Llama and its relatives. The defaults are Llama's choices; families/ has a file with each family's own.
struct DecoderConfig {
  const char* family = "llama";
  std::int64_t vocabulary = 32000;
  std::int64_t positions = 2048;
  std::int64_t width = 4096;
  std::int64_t inner = 11008;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 32;
  std::int64_t head_size = 128;
  Activation activation = Activation::silu;
  MlpKind mlp = MlpKind::gated;
  bool layer_norm = false;  // with bias, in place of RMS norm
  double norm_epsilon = 1e-6;
  bool norm_adds_one = false;  // RMS norms multiply with 1 + weight
  NormPlace norm_place = NormPlace::before;
  HeadNorm head_norm = HeadNorm::none;
  bool parallel_residual = false;  // x + attention(norm(x)) + mlp(other norm(x))
  RopeConfig rope;
  RopeConfig local_rope;  // of layers with a window, where has_local_rope
  bool has_local_rope = false;
  std::int64_t rotary_size = 0;  // of a head; 0: all of it
  std::vector<bool> no_rotary;   // by layer; empty: all have rotary positions
  std::int64_t window = 0;       // tokens that layers with a window attend to
  std::vector<bool> windowed;    // by layer; empty: none
  Projection projection = Projection::apart;
  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  double attention_scale = 0;  // 0: 1 / sqrt(head_size)
  double score_cap = 0;        // cap · tanh(score / cap); 0: none
  double logits_cap = 0;
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double logits_divisor = 1;
  bool tied_head = false;
  double embedding_dropout = 0;
  double residual_dropout = 0;
  double attention_dropout = 0;
  std::int64_t padding = -1;  // the token whose embedding is not trained; -1: none
  double initializer_range = 0.02;
  SpecialIds ids{{1}, {2}};
  DecoderNames names;

  std::int64_t window_of(std::int64_t layer) const { return !windowed.empty() && windowed[static_cast<std::size_t>(layer)] ? window : 0; }
  bool has_rotary(std::int64_t layer) const { return no_rotary.empty() || !no_rotary[static_cast<std::size_t>(layer)]; }
  const RopeConfig& rope_of(std::int64_t layer) const { return has_local_rope && window_of(layer) > 0 ? local_rope : rope; }
};

using FamilyConfig = std::variant<Gpt2Config, DecoderConfig>;

// The inverse frequencies of rotary embedding, one per pair that is turned, for sequences of this length (the dynamic and longrope scalings
// depend on it), computed in f32 in transformers' order of operations.
std::vector<float> rope_inverse_frequencies(const DecoderConfig& config, const RopeConfig& rope, std::int64_t sequence_length);

// How a folder stores its linears in 4 bits (config.json's quantization_config); they are read as f32.
struct Quantization {
  enum class Kind { gptq, gptq_v2, awq };
  Kind kind = Kind::gptq;
  std::int64_t group = 128;  // inputs that share a scale; 0: all
};

// A model's configuration: the family's struct, and the JSON text that it came from, so that saving gives it back.
struct ModelConfig {
  FamilyConfig family;
  std::string source;  // config.json as loaded, or as made for a preset
  std::optional<Quantization> quantization = {};

  const Gpt2Config* gpt2() const { return std::get_if<Gpt2Config>(&family); }
  const DecoderConfig* decoder() const { return std::get_if<DecoderConfig>(&family); }
  const char* family_name() const { return gpt2() ? "gpt2" : decoder()->family; }

  std::int64_t vocabulary() const;
  std::int64_t positions() const;
  std::int64_t layers() const;
  std::int64_t width() const;
  bool tied_head() const;
  const SpecialIds& ids() const;
};

// folder/config.json, and folder/generation_config.json for the begin and end tokens where it is there. FileError for a
// family that is not known and for every value that changes the result and is not supported, by name.
ModelConfig load_config(const std::filesystem::path& folder);
ModelConfig parse_config(std::string_view json, const std::string& name);

// demo | tiny | mid | gpt2 (docs/command_line.md): GPT-2 with a head of its own, no dropout. ConfigError for another name.
bool is_preset(std::string_view name);
ModelConfig preset_config(std::string_view name);
std::int64_t preset_sequence_length(std::string_view name);
// A configuration made in code, with a config.json that Hugging Face reads.
ModelConfig make_config(const Gpt2Config& config);
ModelConfig make_config(const DecoderConfig& config);  // Llama's choices alone

// What to write as config.json: the source, unchanged but for the type of the weights (torch_dtype, dtype) when given
// ("float32", "bfloat16"); an empty string leaves that as it is. What is saved is not quantized, so quantization_config is left out.
std::string config_json(const ModelConfig& config, const std::string& dtype = "");

}  // namespace ppengine::models
