// The list of model families.
#include <ppengine/models/families/families.hpp>

#include <array>

namespace ppengine::models {
namespace {

template <auto parse>
FamilyConfig family(const JsonPlace& config) {
  return parse(config);
}

constexpr std::array<Family, 12> known{{
    {"gpt2", family<parse_gpt2>},
    {"llama", family<parse_llama>},
    {"mistral", family<parse_mistral>},
    {"qwen2", family<parse_qwen2>},
    {"qwen3", family<parse_qwen3>},
    {"smollm3", family<parse_smollm3>},
    {"granite", family<parse_granite>},
    {"olmo2", family<parse_olmo2>},
    {"gpt_neox", family<parse_gpt_neox>},
    {"gemma2", family<parse_gemma2>},
    {"gemma3_text", family<parse_gemma3_text>},
    {"phi3", family<parse_phi3>},
}};

}  // namespace

std::span<const Family> families() { return known; }

}  // namespace ppengine::models
