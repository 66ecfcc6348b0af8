// LoRA adapters as folders of the peft library: adapter_config.json and adapter_model.safetensors.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/engine/graph/lora.hpp>
#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {

constexpr const char* adapter_config_file = "adapter_config.json";
constexpr const char* adapter_stem = "adapter_model";

class Adapter {
 public:
  // FileError for what is missing, broken, or of a kind that is not supported (DoRA, biases, modules that are saved whole), by name.
  static Adapter open(const std::filesystem::path& folder);

  // As the folder says, with a rank for each module of the files.
  const engine::LoraOptions& options() const { return options_; }
  // Every module of the adapter must be a linear of the graph, with the right shapes. FileError names the first that is not.
  void check(const engine::Graph& graph) const;
  // The tensor of MODULE.lora_A.weight or MODULE.lora_B.weight; null: the adapter has none of this name.
  const StoredTensor* find(const std::string& parameter) const;
  // Adds scale * B A to the weight of a linear, whole and as in the file. False where the adapter does not change it.
  bool add_to(const engine::ParameterInfo& weight, std::span<float> whole) const;
  bool changes(const std::string& weight) const;  // "MODULE.weight"

 private:
  Adapter() = default;
  std::filesystem::path folder_;
  engine::LoraOptions options_;
  std::shared_ptr<WeightFiles> files_;
  std::map<std::string, const StoredTensor*> tensors_;  // by our parameter name
};

// adapter_config.json for an adapter of these options. `base`: the folder of the model beneath.
std::string adapter_config_json(const engine::LoraOptions& options, const engine::Graph& graph, const std::string& base);
// What peft calls the tensor of one of our parameters.
std::string adapter_tensor_name(const std::string& parameter);
// MODULE.lora_A.weight or MODULE.lora_B.weight
bool is_adapter_parameter(const std::string& name);
// What adapter_config.json says the model beneath is; empty: nothing.
std::string adapter_base(const std::filesystem::path& folder);
bool is_adapter_folder(const std::filesystem::path& folder);

// W + scale * B A for every weight that the adapter changes, in a folder that is otherwise the model's: same types, same names.
void merge_adapter(const std::filesystem::path& model, const std::filesystem::path& adapter, const std::filesystem::path& out);

}  // namespace ppengine::models
