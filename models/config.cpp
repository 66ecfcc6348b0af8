// config.json: which family, the presets, and writing it back.
#include <ppengine/models/config.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/models/families/families.hpp>

namespace ppengine::models {
namespace {

constexpr std::uint64_t max_config_bytes = 4'000'000;

struct Preset {
  const char* name;
  std::int64_t layers, width, heads, sequence, vocabulary;
};
// demo is what scripts/demo trains: small enough to learn to add within minutes on two cores.
constexpr std::array<Preset, 4> presets{
    {{"demo", 4, 128, 4, 40, 256}, {"tiny", 4, 256, 4, 128, 256}, {"mid", 8, 512, 8, 256, 8192}, {"gpt2", 12, 768, 12, 256, 50257}}};

const Preset* find_preset(std::string_view name) {
  for (const Preset& preset : presets)
    if (name == preset.name) return &preset;
  return nullptr;
}

const Preset& preset_or_throw(std::string_view name) {
  if (const Preset* preset = find_preset(name)) return *preset;
  throw ConfigError(fmt::format("'{}' is not a preset: demo, tiny, mid and gpt2 are", name));
}

SpecialIds& ids_of(FamilyConfig& family) {
  return std::visit([](auto& config) -> SpecialIds& { return config.ids; }, family);
}

// As transformers, AutoGPTQ, GPTQModel and AutoAWQ write it.
Quantization parse_quantization(const JsonPlace& from) {
  from.expect_object();
  Quantization how;
  const JsonPlace method = from.at("quant_method");
  if (method.string() == "awq") {
    how.kind = Quantization::Kind::awq;
    if (const auto version = from.find("version"); version && version->string() != "gemm")
      version->refuse(fmt::format("is '{}': only gemm is supported", version->string()));
  } else if (method.string() == "gptq") {
    const std::string format = from.string_or("checkpoint_format", "gptq");
    if (format != "gptq" && format != "gptq_v2")
      from.at("checkpoint_format").refuse(fmt::format("is '{}': gptq and gptq_v2 are supported", format));
    if (format == "gptq_v2") how.kind = Quantization::Kind::gptq_v2;
  } else {
    method.refuse(fmt::format("is '{}': gptq and awq are supported", method.string()));
  }
  if (const JsonPlace bits = from.at("bits"); bits.integer(1, 64) != 4)
    bits.refuse(fmt::format("is {}: only 4 bits are supported", bits.integer(1, 64)));
  how.group = std::max<std::int64_t>(from.integer_or("group_size", 128, -1, max_inner), 0);
  return how;
}

}  // namespace

std::int64_t ModelConfig::vocabulary() const {
  return std::visit([](const auto& c) { return c.vocabulary; }, family);
}
std::int64_t ModelConfig::positions() const {
  return std::visit([](const auto& c) { return c.positions; }, family);
}
std::int64_t ModelConfig::layers() const {
  return std::visit([](const auto& c) { return c.layers; }, family);
}
std::int64_t ModelConfig::width() const {
  return std::visit([](const auto& c) { return c.width; }, family);
}
bool ModelConfig::tied_head() const {
  return std::visit([](const auto& c) { return c.tied_head; }, family);
}
const SpecialIds& ModelConfig::ids() const {
  return std::visit([](const auto& c) -> const SpecialIds& { return c.ids; }, family);
}

ModelConfig parse_config(std::string_view json, const std::string& name) {
  const nlohmann::json value = parse_json(json, name, {.refuse_duplicate_keys = false});
  const JsonPlace config(value, name);
  config.expect_object();
  const JsonPlace type = config.at("model_type");
  std::string names;
  for (const Family& family : families()) {
    if (type.string() == family.name) {
      ModelConfig parsed{family.parse(config), std::string(json)};
      if (const auto quantization = config.find("quantization_config")) parsed.quantization = parse_quantization(*quantization);
      return parsed;
    }
    names += (names.empty() ? "" : ", ") + std::string(family.name);
  }
  type.refuse(
      fmt::format("is '{}': the families {} are known; export another model as a program with torch.export and give that (FILE.pt2)",
                  type.string(), names));
}

ModelConfig load_config(const std::filesystem::path& folder) {
  const auto path = folder / "config.json";
  ModelConfig config = parse_config(read_file(path, max_config_bytes), path.string());
  const auto generation_path = folder / "generation_config.json";
  std::error_code ignored;
  if (std::filesystem::exists(generation_path, ignored)) {
    const nlohmann::json value = read_json(generation_path, max_config_bytes, {.refuse_duplicate_keys = false});
    const JsonPlace generation(value, generation_path.string());
    SpecialIds& ids = ids_of(config.family);
    if (!generation.absent("bos_token_id")) ids.bos = parse_ids(generation, "bos_token_id", {}, config.vocabulary());
    if (!generation.absent("eos_token_id")) ids.eos = parse_ids(generation, "eos_token_id", {}, config.vocabulary());
  }
  return config;
}

bool is_preset(std::string_view name) { return find_preset(name) != nullptr; }

ModelConfig preset_config(std::string_view name) {
  const Preset& preset = preset_or_throw(name);
  Gpt2Config config;
  config.vocabulary = preset.vocabulary;
  config.positions = preset.sequence;
  config.width = preset.width;
  config.layers = preset.layers;
  config.heads = preset.heads;
  config.inner = 4 * preset.width;
  config.tied_head = false;
  config.embedding_dropout = config.residual_dropout = config.attention_dropout = 0;
  config.ids = preset.vocabulary == 50257 ? SpecialIds{{50256}, {50256}} : SpecialIds{};
  return make_config(config);
}

std::int64_t preset_sequence_length(std::string_view name) { return preset_or_throw(name).sequence; }

ModelConfig make_config(const Gpt2Config& config) { return {config, gpt2_json(config).dump(2) + "\n"}; }
ModelConfig make_config(const DecoderConfig& config) { return {config, llama_json(config).dump(2) + "\n"}; }

std::string config_json(const ModelConfig& config, const std::string& dtype) {
  if (dtype.empty() && !config.quantization) return config.source;
  nlohmann::json value = parse_json(config.source, "config.json", {.refuse_duplicate_keys = false});
  value.erase("quantization_config");
  if (dtype.empty()) return value.dump(2) + "\n";
  // transformers 5 writes dtype, older ones torch_dtype: the one that is there is kept current, a new file gets both.
  const bool has_new = value.contains("dtype"), has_old = value.contains("torch_dtype");
  if (has_new || !has_old) value["dtype"] = dtype;
  if (has_old || !has_new) value["torch_dtype"] = dtype;
  return value.dump(2) + "\n";
}

}  // namespace ppengine::models
