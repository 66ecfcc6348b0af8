// config.json of the model families: every field that changes the result, with Hugging Face's defaults.
#pragma once

#include <cstdint>
#include <filesystem>
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

enum class RopeScaling { none, linear, dynamic, llama3 };

struct RopeConfig {
  RopeScaling scaling = RopeScaling::none;
  double theta = 10000.0;
  double factor = 1.0;                  // linear, dynamic, llama3
  double low_frequency_factor = 1.0;    // llama3
  double high_frequency_factor = 4.0;   // llama3
  std::int64_t original_positions = 0;  // llama3
};

struct LlamaConfig {
  std::int64_t vocabulary = 32000;
  std::int64_t positions = 2048;
  std::int64_t width = 4096;
  std::int64_t inner = 11008;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::int64_t kv_heads = 32;
  std::int64_t head_size = 128;
  Activation activation = Activation::silu;
  double rms_norm_epsilon = 1e-6;
  RopeConfig rope;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool tied_head = false;
  double attention_dropout = 0.0;
  double initializer_range = 0.02;
  SpecialIds ids{{1}, {2}};
};

using FamilyConfig = std::variant<Gpt2Config, LlamaConfig>;

// The inverse frequencies of rotary embedding, head_size / 2 of them, for sequences of this length (only the dynamic
// scaling depends on it), computed in f32 in transformers' order of operations.
std::vector<float> rope_inverse_frequencies(const LlamaConfig& config, std::int64_t sequence_length);

// A model's configuration: the family's struct, and the JSON text that it came from, so that saving gives it back.
struct ModelConfig {
  FamilyConfig family;
  std::string source;  // config.json as loaded, or as made for a preset

  const Gpt2Config* gpt2() const { return std::get_if<Gpt2Config>(&family); }
  const LlamaConfig* llama() const { return std::get_if<LlamaConfig>(&family); }
  const char* family_name() const { return gpt2() ? "gpt2" : "llama"; }

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

// demo | tiny | mid | gpt2 (cli.md): GPT-2 with a head of its own, no dropout. ConfigError for another name.
bool is_preset(std::string_view name);
ModelConfig preset_config(std::string_view name);
std::int64_t preset_sequence_length(std::string_view name);
// A configuration made in code, with a config.json that Hugging Face reads.
ModelConfig make_config(const Gpt2Config& config);
ModelConfig make_config(const LlamaConfig& config);

// What to write as config.json: the source, unchanged but for the type of the weights (torch_dtype, dtype) when given
// ("float32", "bfloat16"); an empty string leaves that as it is.
std::string config_json(const ModelConfig& config, const std::string& dtype = "");

}  // namespace ppengine::models
