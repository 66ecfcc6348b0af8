// Reading and describing LoRA adapters.
#include <ppengine/models/files/adapter.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <set>
#include <thread>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/pattern.hpp>

namespace ppengine::models {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view prefix = "base_model.model.";

// "base_model.model.X.lora_A.weight" (or .lora_A.default.weight) is X.lora_A.weight here. Empty: no tensor of a low-rank term.
std::string own_name(std::string name) {
  if (!name.starts_with(prefix)) return "";
  name = name.substr(prefix.size());
  for (const char* part : {".lora_A", ".lora_B"}) {
    const std::size_t at = name.rfind(part);
    if (at == std::string::npos) continue;
    const std::string rest = name.substr(at + 7);
    if (rest == ".weight" || rest == ".default.weight") return name.substr(0, at) + part + ".weight";
  }
  return "";
}

std::string module_of(const std::string& parameter) {
  for (const char* end : {".lora_A.weight", ".lora_B.weight", ".weight"})
    if (parameter.ends_with(end)) return parameter.substr(0, parameter.size() - std::string_view(end).size());
  return parameter;
}

void refuse_unsupported(const JsonPlace& root) {
  if (root.string_or("peft_type", "LORA") != "LORA") root.at("peft_type").refuse("must be LORA: other adapters are not supported");
  for (const char* kind : {"use_dora", "use_qalora", "lora_bias"})
    if (root.boolean_or(kind, false)) root.at(kind).refuse("is not supported");
  if (root.string_or("bias", "none") != "none") root.at("bias").refuse("must be none: trained biases are not supported");
  for (const char* field : {"modules_to_save", "layer_replication", "target_parameters", "trainable_token_indices", "use_bdlora",
                            "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config", "velora_config"})
    if (const auto place = root.find(field); place && !place->json().empty()) place->refuse("is not supported");
  // peft changes the weights beneath such an adapter when it loads it: with those of the model the result would be another.
  const auto start = root.find("init_lora_weights");
  if (!start || !start->json().is_string()) return;
  for (const char* kind : {"pissa", "corda", "olora", "loftq", "lora_ga"})
    if (start->string().starts_with(kind))
      start->refuse(
          fmt::format("is '{}': such an adapter belongs to changed weights; let peft convert it to plain LoRA "
                      "(save_pretrained with path_initial_model_for_weight_conversion)",
                      start->string()));
}

// The keys of alpha_pattern or rank_pattern in the file's order: the first that fits a module counts.
std::vector<std::string> keys_of(const JsonPlace& root, const char* field, std::string_view text) {
  std::vector<std::string> keys;
  const auto patterns = root.find(field);
  if (!patterns || patterns->expect_object().json().empty()) return keys;
  const auto ordered = nlohmann::ordered_json::parse(text);
  for (const auto& [key, value] : ordered.at(field).items()) keys.push_back(key);
  return keys;
}

// The value of alpha_pattern or rank_pattern for a module: a key is a regular expression of how the name ends, as in peft.
std::optional<double> own_value(const JsonPlace& root, const char* field, const std::vector<std::string>& keys, const std::string& module) {
  const auto patterns = root.find(field);
  for (const std::string& key : keys) try {
      if (Pattern(field, "(.*\\.)?(" + key + ")").fits(module)) return patterns->at(key.c_str()).number(-1e9, 1e9);
    } catch (const ConfigError&) {
      patterns->at(key.c_str()).refuse("its name is not a regular expression that can be used");
    }
  return {};
}

std::vector<float> widened(const StoredTensor& tensor) {
  std::vector<float> values(tensor.elements);
  read_f32(tensor, 0, tensor.elements, values.data());
  return values;
}

}  // namespace

bool is_adapter_folder(const fs::path& folder) { return fs::exists(folder / adapter_config_file); }

std::string adapter_tensor_name(const std::string& parameter) { return std::string(prefix) + parameter; }

Adapter Adapter::open(const fs::path& folder) {
  const fs::path config = folder / adapter_config_file;
  if (!fs::exists(config))
    throw FileError(fmt::format("{}: not an adapter: {} is missing; give a folder that peft or --save has written", folder.string(),
                                adapter_config_file));
  const std::string text = read_file(config, 1 << 24);
  const nlohmann::json json = parse_json(text, config.string());
  const JsonPlace root(json, config.string());
  root.expect_object();
  refuse_unsupported(root);
  const auto ranks = keys_of(root, "rank_pattern", text), alphas = keys_of(root, "alpha_pattern", text);
  Adapter adapter;
  adapter.folder_ = folder;
  adapter.options_.rank = root.at("r").integer(1, 1 << 20);
  adapter.options_.alpha = root.number_or("lora_alpha", 8.0, -1e9, 1e9);
  adapter.options_.dropout = root.number_or("lora_dropout", 0.0, 0.0, 0.999999);
  adapter.options_.rank_stabilized = root.boolean_or("use_rslora", false);
  const fs::path file = folder / fmt::format("{}.safetensors", adapter_stem);
  if (!fs::exists(file)) throw FileError(fmt::format("{}: is missing; adapters in other files (.bin) are not read", file.string()));
  adapter.files_ = std::make_shared<WeightFiles>(WeightFiles::open(file));
  std::set<std::string> modules;
  for (const StoredTensor& tensor : adapter.files_->tensors()) {
    if (tensor.name.find(".base_layer.") != std::string::npos) continue;  // peft saves an adapted head's own weight too: the model has it
    const std::string name = own_name(tensor.name);
    if (name.empty())
      throw FileError(fmt::format("{}: tensor '{}' is no lora_A or lora_B of a linear: not supported", file.string(), tensor.name));
    if (tensor.shape.size() != 2) throw FileError(fmt::format("{}: tensor '{}' is no matrix", file.string(), tensor.name));
    adapter.tensors_[name] = &tensor;
    modules.insert(module_of(name));
  }
  if (modules.empty()) throw FileError(fmt::format("{}: holds no tensors", file.string()));
  for (const std::string& module : modules) {
    const StoredTensor *a = adapter.find(module + ".lora_A.weight"), *b = adapter.find(module + ".lora_B.weight");
    if (!a || !b) throw FileError(fmt::format("{}: {} has only one of lora_A and lora_B", file.string(), module));
    if (a->shape[0] != b->shape[1])
      throw FileError(fmt::format("{}: {}: lora_A has rank {}, lora_B {}", file.string(), module, a->shape[0], b->shape[1]));
    adapter.options_.targets.push_back(module);
    adapter.options_.ranks[module] = a->shape[0];
    // A configuration of other tensors has another scale too.
    if (const auto rank = own_value(root, "rank_pattern", ranks, module).value_or(double(adapter.options_.rank));
        rank != double(a->shape[0]))
      throw FileError(fmt::format("{}: {}: lora_A has rank {}, {} says {}", file.string(), module, a->shape[0], adapter_config_file, rank));
    if (const auto alpha = own_value(root, "alpha_pattern", alphas, module)) adapter.options_.alphas[module] = *alpha;
  }
  return adapter;
}

std::string adapter_base(const fs::path& folder) {
  const nlohmann::json json = read_json(folder / adapter_config_file, 1 << 24);
  return JsonPlace(json, (folder / adapter_config_file).string()).string_or("base_model_name_or_path", "");
}

bool is_adapter_parameter(const std::string& name) { return name.ends_with(".lora_A.weight") || name.ends_with(".lora_B.weight"); }

const StoredTensor* Adapter::find(const std::string& parameter) const {
  const auto found = tensors_.find(parameter);
  return found == tensors_.end() ? nullptr : found->second;
}

bool Adapter::changes(const std::string& weight) const { return weight.ends_with(".weight") && find(module_of(weight) + ".lora_A.weight"); }

void Adapter::check(const engine::Graph& graph) const {
  for (const auto& [name, tensor] : tensors_) {
    const std::string module = module_of(name);
    const engine::ParameterId id = graph.find_parameter(module + ".weight");
    if (!id)
      throw FileError(fmt::format("{}: tensor '{}': the model has no linear {}{}", tensor->file, tensor->name, module,
                                  module.ends_with("lm_head") ? " of its own: its head is tied to the embedding" : ""));
    const engine::ParameterInfo& info = graph.parameters()[id];
    const bool out_in = info.file_layout == ops::WeightLayout::out_in, is_a = name.ends_with(".lora_A.weight");
    const std::int64_t in = info.whole_shape()[out_in ? 1 : 0], out = info.whole_shape()[out_in ? 0 : 1];
    if (!info.linear_weight || tensor->shape[is_a ? 1 : 0] != (is_a ? in : out))
      throw FileError(fmt::format("{}: tensor '{}' has shape [{}, {}], and {} has {} inputs and {} outputs", tensor->file, tensor->name,
                                  tensor->shape[0], tensor->shape[1], module, in, out));
  }
}

bool Adapter::add_to(const engine::ParameterInfo& weight, std::span<float> whole) const {
  if (!changes(weight.name)) return false;
  const std::string module = module_of(weight.name);
  const std::vector<float> a = widened(*find(module + ".lora_A.weight")), b = widened(*find(module + ".lora_B.weight"));
  const bool out_in = weight.file_layout == ops::WeightLayout::out_in;
  const auto rank = static_cast<std::size_t>(options_.rank_of(module)), in = a.size() / rank, out = b.size() / rank;
  PPENGINE_ASSERT(whole.size() == in * out);
  const auto scale = static_cast<float>(options_.scale(module));
  // A row of the file at a time: [out, in], or [in, out] from the transposed factors.
  const std::size_t rows = out_in ? out : in, columns = out_in ? in : out;
  const auto work = [&](std::size_t begin, std::size_t end) {
    std::vector<float> delta(columns);
    for (std::size_t row = begin; row < end; ++row) {
      std::ranges::fill(delta, 0.0f);
      for (std::size_t k = 0; k < rank; ++k) {
        const float factor = out_in ? b[row * rank + k] : a[k * in + row];
        if (out_in)
          for (std::size_t j = 0; j < columns; ++j) delta[j] += factor * a[k * in + j];
        else
          for (std::size_t j = 0; j < columns; ++j) delta[j] += factor * b[j * rank + k];
      }
      for (std::size_t j = 0; j < columns; ++j) whole[row * columns + j] += scale * delta[j];
    }
  };
  const std::size_t threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::jthread> workers;
  for (std::size_t t = 1; t < threads; ++t) workers.emplace_back([&, t] { work(rows * t / threads, rows * (t + 1) / threads); });
  work(0, rows / threads);
  return true;
}

std::string adapter_config_json(const engine::LoraOptions& options, const engine::Graph& graph, const std::string& base) {
  std::set<std::string> targets;
  bool fan_in_fan_out = false;
  nlohmann::json ranks = nlohmann::json::object(), alphas = nlohmann::json::object();
  const auto adapted = engine::lora_modules(graph, options.targets);
  for (const std::string& module : adapted) {
    targets.insert(module.substr(module.rfind('.') + 1));
    const engine::ParameterId id = graph.find_parameter(module + ".weight");
    if (id && graph.parameters()[id].file_layout == ops::WeightLayout::in_out) fan_in_fan_out = true;
    if (options.rank_of(module) != options.rank) ranks[module] = options.rank_of(module);
    if (const auto own = options.alphas.find(module); own != options.alphas.end()) alphas[module] = own->second;
  }
  // Names that end alike in modules that are not adapted need the whole path.
  for (const engine::Node& node : graph.nodes()) {
    const std::string name = node.module.substr(node.module.rfind('.') + 1);
    const engine::ParameterId id = graph.find_parameter(node.module + ".weight");
    const bool linear = id && graph.parameters()[id].linear_weight;
    if (!linear || !targets.contains(name) || std::ranges::find(adapted, node.module) != adapted.end()) continue;
    targets = {adapted.begin(), adapted.end()};
    break;
  }
  const nlohmann::json json{{"peft_type", "LORA"},
                            {"task_type", "CAUSAL_LM"},
                            {"base_model_name_or_path", base},
                            {"r", options.rank},
                            {"lora_alpha", options.alpha == double(static_cast<std::int64_t>(options.alpha))
                                               ? nlohmann::json(static_cast<std::int64_t>(options.alpha))
                                               : nlohmann::json(options.alpha)},
                            {"lora_dropout", options.dropout},
                            {"use_rslora", options.rank_stabilized},
                            {"target_modules", targets},
                            {"rank_pattern", ranks},
                            {"alpha_pattern", alphas},
                            {"fan_in_fan_out", fan_in_fan_out},
                            {"bias", "none"},
                            {"use_dora", false},
                            {"init_lora_weights", true},
                            {"inference_mode", true},
                            {"modules_to_save", nullptr}};
  return json.dump(2) + "\n";
}

}  // namespace ppengine::models
