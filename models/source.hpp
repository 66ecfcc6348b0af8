// What --model names: a folder in Hugging Face's layout, or a preset with random weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <ppengine/models/config.hpp>
#include <ppengine/models/tokenizer/tokenizer.hpp>

namespace ppengine::models {

struct NamedAdapter {
  std::string name;
  std::filesystem::path folder;
};

struct ModelSource {
  ModelConfig config;
  std::optional<std::filesystem::path> folder;  // where the weights are; empty for presets
  std::int64_t sequence_length = 0;             // when nobody says: the preset's, or all positions of the model
  std::filesystem::path adapter = {};           // a LoRA adapter for the weights (peft's folder); empty: none
  std::string name = {};                        // of the preset, or the folder's whole path
  std::vector<NamedAdapter> adapters = {};      // side by side: a sequence has one of them or none
  std::optional<Tokenizer> tokenizer() const;   // folder/tokenizer.json where there is one
};

ModelSource open_model(const std::string& folder_or_preset);

}  // namespace ppengine::models
