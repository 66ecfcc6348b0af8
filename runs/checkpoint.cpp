// Checkpoints: finding and loading them. saving.cpp writes them.
#include <ppengine/runs/checkpoint.hpp>

#include <fmt/core.h>
#include <sys/stat.h>

#include <functional>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/weights/optimizer.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/models/files/checksums.hpp>
#include <ppengine/models/files/save_folder.hpp>
#include <ppengine/models/files/weights.hpp>
#include <ppengine/runs/training/checkpoint_parts.hpp>

namespace ppengine::runs {

namespace fs = std::filesystem;

std::optional<SavedCheckpoint> find_checkpoint(const fs::path& folder) {
  const fs::path file = folder / state_file;
  struct stat info{};
  try {
    models::finish_save(folder);
  } catch (const Error&) {  // not ours to write to
  }
  if (stat(file.c_str(), &info) != 0) return {};
  try {
    const nlohmann::json json = read_json(file, 1 << 20);
    return SavedCheckpoint{JsonPlace(json, file.string()).at("step").integer(0, INT64_MAX),
                           fmt::format("{}.{}.{}", info.st_ino, info.st_mtim.tv_sec, info.st_mtim.tv_nsec)};
  } catch (const Error&) {  // not one of ours
    return {};
  }
}

std::map<std::string, std::string> saved_settings(const fs::path& folder) {
  const fs::path file = folder / state_file;
  std::error_code failed;
  if (!fs::exists(file, failed)) return {};
  const nlohmann::json json = read_json(file, 1 << 20);
  std::map<std::string, std::string> settings;
  if (const auto found = json.find("settings"); found != json.end() && found->is_object())
    for (const auto& [name, value] : found->items())
      if (value.is_string()) settings[name] = value.get<std::string>();
  return settings;
}

namespace {

// A tensor of a file for a parameter or a state of it.
const models::StoredTensor& stored_for(const models::WeightFiles& files, const std::string& name, const engine::ParameterInfo& info) {
  const models::StoredTensor& stored = files.at(name);
  const auto elements = static_cast<std::size_t>(info.whole_shape().count());
  if (stored.elements != elements)
    throw FileError(fmt::format("{}: {} has {} elements, the model needs {}", stored.file, stored.name, stored.elements, elements));
  return stored;
}

void load_parameters(engine::Trainer& trainer, const models::WeightFiles& files) {
  std::vector<float> host;
  ops::Stream& stream = trainer.pipeline().stream();
  for (engine::StageId stage : trainer.model().stages()) {
    engine::ParameterStore& parameters = trainer.model().parameters(stage);
    for_each_parameter(trainer.model(), stage, false, [&](const engine::ParameterRange& range, const engine::ParameterInfo& info) {
      const models::StoredTensor& stored = stored_for(files, info.name, info);
      host.resize(stored.elements);
      models::read_f32(stored, 0, stored.elements, host.data());
      parameters.load(stream, range, host);
    });
    parameters.refresh(stream);
  }
  stream.wait();
}

}  // namespace

void load_weights(const fs::path& folder, engine::Trainer& trainer) {
  load_parameters(trainer, models::WeightFiles::open(folder));
  trainer.synchronize();
}

namespace {

RunState load(const fs::path& folder, engine::Trainer& trainer, const std::function<void()>& load_all) {
  engine::Optimizer& optimizer = trainer.optimizer();
  RunState state = read_state(folder, optimizer);
  load_all();
  const auto states = optimizer.state_names();
  if (states.empty()) return state;
  const models::WeightFiles moments = models::WeightFiles::open(folder / optimizer_file);
  const models::Checksums checksums(folder);
  std::vector<float> host;
  const auto load_state = [&](std::size_t i, engine::StageId stage) {
    float* const flat = optimizer.state(stage, i);
    for_each_parameter(trainer.model(), stage, false, [&](const engine::ParameterRange& range, const engine::ParameterInfo& info) {
      if (info.frozen) return;
      const models::StoredTensor& stored = stored_for(moments, info.name + "." + states[i], info);
      checksums.verify(stored);
      host.resize(stored.elements);
      models::read_f32(stored, 0, stored.elements, host.data());
      trainer.model().parameters(stage).load_state(trainer.pipeline().stream(), range, flat, host);
    });
    optimizer.store_state(stage, i);
  };
  for (std::size_t i = 0; i < states.size(); ++i)
    for (engine::StageId stage : trainer.model().stages()) load_state(i, stage);
  return state;
}

}  // namespace

RunState load_checkpoint(const fs::path& folder, engine::Trainer& trainer, const models::ModelSource& model) {
  return load(folder, trainer, [&] {
    ops::Stream& stream = trainer.pipeline().stream();
    if (!models::is_adapter_folder(folder)) {
      models::load_weights(trainer.model(), stream, model.config, models::WeightFiles::open(folder));
      return;
    }
    const models::Adapter adapter = models::Adapter::open(folder);
    if (model.folder)
      models::load_weights(trainer.model(), stream, model.config, models::WeightFiles::open(*model.folder), &adapter);
    else
      models::load_adapter(trainer.model(), stream, adapter);
  });
}

RunState load_checkpoint(const fs::path& folder, engine::Trainer& trainer) {
  const RunState state = load(folder, trainer, [&] { load_parameters(trainer, models::WeightFiles::open(folder)); });
  trainer.synchronize();
  return state;
}

}  // namespace ppengine::runs
