// The model families: what config.json's model_type can be.
#pragma once

#include <span>

#include <ppengine/models/families/config_parse.hpp>

namespace ppengine::models {

struct Family {
  const char* name;
  FamilyConfig (*parse)(const JsonPlace& config);
};
std::span<const Family> families();

DecoderConfig parse_llama(const JsonPlace& config);
DecoderConfig parse_mistral(const JsonPlace& config);
DecoderConfig parse_qwen2(const JsonPlace& config);
DecoderConfig parse_qwen3(const JsonPlace& config);
DecoderConfig parse_smollm3(const JsonPlace& config);
DecoderConfig parse_granite(const JsonPlace& config);
DecoderConfig parse_olmo2(const JsonPlace& config);
DecoderConfig parse_gpt_neox(const JsonPlace& config);
DecoderConfig parse_gemma2(const JsonPlace& config);
DecoderConfig parse_gemma3_text(const JsonPlace& config);
DecoderConfig parse_phi3(const JsonPlace& config);
// What Gemma 2 and Gemma 3 have in common.
DecoderConfig parse_gemma(const JsonPlace& config, const char* family, std::int64_t vocabulary, std::int64_t positions);
void parse_qwen_windows(const JsonPlace& config, DecoderConfig& out);

}  // namespace ppengine::models
