// Shared by the families' config.json readers.
#pragma once

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
LlamaConfig parse_llama(const JsonPlace& config);
nlohmann::json gpt2_json(const Gpt2Config& config);
nlohmann::json llama_json(const LlamaConfig& config);

Activation parse_activation(const JsonPlace& config, const char* key, const char* otherwise);
const char* activation_name(Activation activation);  // a name that Hugging Face knows
// An id, a list of ids, or null for none; a missing key gives `otherwise`. Each id must be in the vocabulary.
std::vector<std::int32_t> parse_ids(const JsonPlace& config, const char* key, std::vector<std::int32_t> otherwise, std::int64_t vocabulary);
nlohmann::json ids_json(const std::vector<std::int32_t>& ids);
// Fields of other architectures that would change the result: refused by name unless they are neutral.
void refuse_foreign_fields(const JsonPlace& config);

}  // namespace ppengine::models
