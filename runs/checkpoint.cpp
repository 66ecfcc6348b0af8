// Checkpoints, written aside by all ranks and put in place at the end.
#include <ppengine/runs/checkpoint.hpp>

#include <fmt/core.h>
#include <sys/stat.h>
#include <functional>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/models/files/checksums.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>
#include <ppengine/models/files/save_folder.hpp>
#include <ppengine/models/files/weights.hpp>

namespace ppengine::runs {
namespace {

namespace fs = std::filesystem;
constexpr const char* optimizer_file = "optimizer.safetensors";
constexpr const char* state_file = "trainer_state.json";

// One file of a checkpoint: weights, or one state of the optimizer for each of them.
std::vector<models::TensorSpec> weight_tensors(const models::ModelConfig& config) {
  std::vector<models::TensorSpec> tensors;
  for (const models::Parameter& one : models::list_parameters(config)) tensors.push_back({one.name, models::StoredType::f32, one.shape});
  return tensors;
}

std::vector<models::TensorSpec> weight_tensors(const engine::Graph& graph) {
  std::vector<models::TensorSpec> tensors;
  for (const engine::ParameterInfo& one : graph.parameters()) {
    const auto dims = one.whole_shape().dims();
    tensors.push_back({one.name, models::StoredType::f32, {dims.begin(), dims.end()}});
  }
  return tensors;
}

std::vector<models::TensorSpec> optimizer_tensors(const std::vector<models::TensorSpec>& weights, const std::vector<std::string>& states) {
  std::vector<models::TensorSpec> tensors;
  for (const std::string& state : states)
    for (const models::TensorSpec& one : weights) tensors.push_back({one.name + "." + state, models::StoredType::f32, one.shape});
  return tensors;
}

// Calls visit(range, info) for every parameter of a stage, or of several stages that use one only for the owner. In the order of the graph,
// which all tensor-parallel ranks share.
template <class Visit>
void for_each_parameter(engine::ModelRank& model, int stage, bool owned_only, Visit&& visit) {
  for (int id : model.cuts()[static_cast<size_t>(stage)].parameters)
    if (!owned_only || model.owner(id) == stage)
      visit(*model.parameters(stage).find(id), model.graph().parameters()[static_cast<size_t>(id)]);
}

// The parts that tensor-parallel ranks have of one tensor, put together; all of them call it.
std::vector<float> gather_whole(comm::Communicator& tensor, engine::Placement placement, const std::vector<float>& part) {
  std::vector<float> whole(static_cast<std::size_t>(placement.whole.count()));
  const auto parts = comm::gather(tensor, part);
  for (placement.rank = 0; placement.rank < placement.ranks; ++placement.rank)
    engine::put_part(placement, parts[static_cast<std::size_t>(placement.rank)], whole);  // parts need not be even
  return whole;
}

// All ranks call it: sharded data-parallel ranks put their parts together, tensor-parallel ones theirs; one of them writes.
void write_part(models::SafetensorsWriter& writer, engine::Trainer& trainer, const std::string& suffix,
                const std::function<const float*(int stage)>& flat) {
  std::vector<float> host;
  const comm::Mesh& mesh = trainer.mesh();
  for (int stage : trainer.model().stages()) {
    const float* const whole = trainer.whole(stage, flat(stage));
    if (mesh.place().data != 0) continue;
    for_each_parameter(trainer.model(), stage, true, [&](const engine::ParameterRange& range, const engine::ParameterInfo& info) {
      host.resize(range.count);
      trainer.model().parameters(stage).save(trainer.pipeline().stream(), range, whole, host);
      if (info.placement.is_split()) host = gather_whole(mesh.tensor(), info.placement, host);
      if (mesh.place().tensor == 0) writer.write(info.name + suffix, 0, host.data(), host.size() * sizeof(float));
    });
  }
  writer.sync();
}

std::string state_json(const RunState& state, const engine::Optimizer& optimizer) {
  nlohmann::json json{{"step", state.step},
                      {"seed", state.seed},
                      {"data", state.data},
                      {"epoch", state.position.epoch},
                      {"next_sequence", state.position.next},
                      {"optimizer", optimizer.options().kind == engine::OptimizerKind::adamw ? "adamw" : "sgd"},
                      {"optimizer_steps", optimizer.steps()},
                      {"optimizer_states", optimizer.state_names()},
                      {"settings", state.settings}};
  return json.dump(2) + "\n";
}

// Files that make the folder complete for Hugging Face: all small ones but the weights, what is written anew, and what the folder has.
void copy_companions(const fs::path& from, const fs::path& to, const fs::path& folder) {
  if (from.empty()) return;
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = entry.is_regular_file() &&
                        (name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".model") || name.ends_with(".jinja"));
    if (!wanted || name == "config.json" || name == state_file || name == models::checksums_file || name.ends_with(".index.json")) continue;
    if (fs::exists(folder / name) && !models::is_as_saved(folder, name)) continue;
    fs::copy_file(entry.path(), to / name, fs::copy_options::overwrite_existing);
  }
}

}  // namespace

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

// complete(aside): what else belongs into the folder, on rank 0.
void save(const fs::path& target, engine::Trainer& trainer, const std::vector<models::TensorSpec>& tensors, const RunState& state,
          const std::function<void(const fs::path& aside, const fs::path& folder)>& complete) try {
  const fs::path folder = models::save_target(target), aside = models::files_aside(folder);
  comm::Communicator& world = trainer.mesh().world();
  engine::Optimizer& optimizer = trainer.optimizer();
  const auto states = optimizer.state_names();
  const models::SafetensorsLayout weights(tensors);
  const models::SafetensorsLayout moments(optimizer_tensors(tensors, states), UINT64_MAX, "optimizer");
  if (world.rank() == 0) {
    models::begin_save(folder);
    models::SafetensorsWriter::create(aside, weights);
    if (!states.empty()) models::SafetensorsWriter::create(aside, moments);
  }
  world.barrier();
  auto writer = models::SafetensorsWriter::open(aside, weights);
  write_part(writer, trainer, "", [&](int stage) { return trainer.model().parameters(stage).values(); });
  if (!states.empty()) {
    auto more = models::SafetensorsWriter::open(aside, moments);
    for (size_t i = 0; i < states.size(); ++i)
      write_part(more, trainer, "." + states[i], [&](int stage) { return optimizer.state(stage, i); });
  }
  world.barrier();
  if (world.rank() == 0) {
    models::SafetensorsWriter::open(aside, weights).commit();
    if (!states.empty()) models::SafetensorsWriter::open(aside, moments).commit();
    complete(aside, folder);
    write_file_atomically(aside / state_file, state_json(state, optimizer));
    if (const std::string tensor = state.finite_only ? models::first_not_finite(aside) : ""; !tensor.empty())
      throw Error(
          fmt::format("{} has a NaN or an infinity after step {}: not saved, {} stays as it was", tensor, state.step, folder.string()));
    models::commit_save(folder);
  }
  world.barrier();
} catch (const FileError& error) {  // a full disk is no wrong usage: the run has failed
  throw Error(error.what());
}

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
  for (int stage : trainer.model().stages()) {
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

void save_checkpoint(const fs::path& target, engine::Trainer& trainer, const models::ModelConfig& config, const RunState& state,
                     const fs::path& model_folder) {
  save(target, trainer, weight_tensors(config), state, [&](const fs::path& aside, const fs::path& folder) {
    copy_companions(model_folder, aside, folder);
    write_file_atomically(aside / "config.json", models::config_json(config, "float32"));
  });
}

void save_checkpoint(const fs::path& folder, engine::Trainer& trainer, const RunState& state) {
  save(folder, trainer, weight_tensors(trainer.model().graph()), state, [](const fs::path&, const fs::path&) {});
}

void save_checkpoint(const fs::path& folder, engine::Trainer& trainer) {
  RunState state;
  state.step = trainer.optimizer().steps();
  save_checkpoint(folder, trainer, state);
}

void load_weights(const fs::path& folder, engine::Trainer& trainer) {
  load_parameters(trainer, models::WeightFiles::open(folder));
  trainer.synchronize();
}

namespace {

RunState load(const fs::path& folder, engine::Trainer& trainer, const std::function<void(const models::WeightFiles&)>& load_all) {
  const fs::path file = folder / state_file;
  models::finish_save(folder);
  if (!fs::exists(file))
    throw FileError(fmt::format("{}: not a checkpoint: {} is missing; --model loads weights alone", folder.string(), state_file));
  const nlohmann::json json = read_json(file, 1 << 20);
  const JsonPlace root(json, file.string());
  root.expect_object();
  constexpr std::int64_t most = INT64_MAX;
  RunState state;
  state.step = root.at("step").integer(0, most);
  state.seed = static_cast<std::uint64_t>(root.integer_or("seed", 0, INT64_MIN, most));
  state.data = root.string_or("data", "");
  state.position.epoch = static_cast<std::uint64_t>(root.at("epoch").integer(0, most));
  state.position.next = static_cast<std::uint64_t>(root.at("next_sequence").integer(0, most));
  state.settings = saved_settings(folder);

  load_all(models::WeightFiles::open(folder));
  engine::Optimizer& optimizer = trainer.optimizer();
  const auto states = optimizer.state_names();
  const char* kind = optimizer.options().kind == engine::OptimizerKind::adamw ? "adamw" : "sgd";
  if (root.at("optimizer").string() != kind)
    throw FileError(fmt::format("{}: was saved by the optimizer {}, not {}: give --optimizer {}", file.string(),
                                root.at("optimizer").string(), kind, root.at("optimizer").string()));
  optimizer.set_steps(root.at("optimizer_steps").integer(0, most));
  if (states.empty()) return state;
  const models::WeightFiles moments = models::WeightFiles::open(folder / optimizer_file);
  const models::Checksums checksums(folder);
  std::vector<float> host;
  const auto load_state = [&](size_t i, int stage) {
    for_each_parameter(trainer.model(), stage, false, [&](const engine::ParameterRange& range, const engine::ParameterInfo& info) {
      const models::StoredTensor& stored = stored_for(moments, info.name + "." + states[i], info);
      checksums.verify(stored);
      host.resize(stored.elements);
      models::read_f32(stored, 0, stored.elements, host.data());
      trainer.model().parameters(stage).load_state(trainer.pipeline().stream(), range, optimizer.state(stage, i), host);
    });
  };
  for (size_t i = 0; i < states.size(); ++i)
    for (int stage : trainer.model().stages()) load_state(i, stage);
  return state;
}

}  // namespace

RunState load_checkpoint(const fs::path& folder, engine::Trainer& trainer, const models::ModelConfig& config) {
  return load(folder, trainer, [&](const models::WeightFiles& files) {
    models::load_weights(trainer.model(), trainer.pipeline().stream(), config, files);
  });
}

RunState load_checkpoint(const fs::path& folder, engine::Trainer& trainer) {
  const RunState state = load(folder, trainer, [&](const models::WeightFiles& files) { load_parameters(trainer, files); });
  trainer.synchronize();
  return state;
}

}  // namespace ppengine::runs
