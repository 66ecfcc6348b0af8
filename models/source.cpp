// Opening what --model names: a folder or a preset.
#include <ppengine/models/source.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/models/files/save_folder.hpp>

namespace ppengine::models {

ModelSource open_model(const std::string& folder_or_preset) {
  if (std::filesystem::is_directory(folder_or_preset)) {
    finish_save(folder_or_preset);
    if (is_adapter_folder(folder_or_preset) && !std::filesystem::exists(std::filesystem::path(folder_or_preset) / "config.json"))
      throw FileError(
          fmt::format("{}: is an adapter and no model: give the model that it was made for ({}) with --model, and the adapter "
                      "with --adapter",
                      folder_or_preset, adapter_base(folder_or_preset)));
    ModelConfig config = load_config(folder_or_preset);
    const std::int64_t positions = config.positions();
    return {std::move(config), folder_or_preset, positions, {}, std::filesystem::absolute(folder_or_preset).lexically_normal().string()};
  }
  if (is_preset(folder_or_preset))
    return {preset_config(folder_or_preset), {}, preset_sequence_length(folder_or_preset), {}, folder_or_preset};
  throw FileError(fmt::format(
      "{}: neither a model folder nor a preset; give a folder with config.json and model.safetensors, or demo, tiny, mid or gpt2",
      folder_or_preset));
}

std::optional<Tokenizer> ModelSource::tokenizer() const {
  if (!folder) return {};
  const auto file = *folder / "tokenizer.json";
  if (!std::filesystem::exists(file)) return {};
  return Tokenizer::load(file);
}

}  // namespace ppengine::models
