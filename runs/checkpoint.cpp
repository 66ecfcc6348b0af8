// Checkpoints, written aside by all ranks and swapped in at the end.
#include <ppengine/runs/checkpoint.hpp>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>
#include <ppengine/models/files/weights.hpp>

namespace ppengine::runs {
namespace {

namespace fs = std::filesystem;
constexpr const char* optimizer_file = "optimizer.safetensors";
constexpr const char* state_file = "trainer_state.json";

bool is_adapter_term(const engine::ParameterInfo& info) {
  return info.name.ends_with(".lora_A.weight") || info.name.ends_with(".lora_B.weight");
}

// One file of a checkpoint: weights, or one state of the optimizer for each that is trained.
models::TensorSpec spec_of(std::string name, const engine::ParameterInfo& info) {
  const auto dims = info.whole_shape().dims();
  return {std::move(name), models::StoredType::f32, {dims.begin(), dims.end()}};
}

std::vector<models::TensorSpec> weight_tensors(const models::ModelConfig& config, const engine::Graph& graph, bool adapter) {
  std::vector<models::TensorSpec> tensors;
  if (adapter) {
    for (const engine::ParameterInfo& one : graph.parameters())
      if (is_adapter_term(one)) tensors.push_back(spec_of(models::adapter_tensor_name(one.name), one));
  } else {
    for (const models::Parameter& one : models::list_parameters(config)) tensors.push_back({one.name, models::StoredType::f32, one.shape});
  }
  return tensors;
}

std::vector<models::TensorSpec> optimizer_tensors(const engine::Graph& graph, const std::vector<std::string>& states) {
  std::vector<models::TensorSpec> tensors;
  for (const std::string& state : states)
    for (const engine::ParameterInfo& one : graph.parameters())
      if (!one.frozen) tensors.push_back(spec_of(one.name + "." + state, one));
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

// A tensor on its way to a file. Kept here until it is written, or written at once.
using TensorSink = std::function<void(const std::string& name, std::vector<float>& values)>;
using TensorName = std::function<std::string(const engine::ParameterInfo&)>;  // empty: not in the file

// All ranks call it: sharded data-parallel ranks put their parts together, tensor-parallel ones theirs; one of them writes.
void take_part(engine::Trainer& trainer, const TensorName& name_of, const std::function<const float*(int stage)>& flat,
               const TensorSink& sink) {
  std::vector<float> host;
  const comm::Mesh& mesh = trainer.mesh();
  for (int stage : trainer.model().stages()) {
    const float* const whole = trainer.whole(stage, flat(stage));
    if (mesh.place().data != 0) continue;
    for_each_parameter(trainer.model(), stage, true, [&](const engine::ParameterRange& range, const engine::ParameterInfo& info) {
      const std::string name = name_of(info);
      if (name.empty()) return;
      host.resize(range.count);
      trainer.model().parameters(stage).save(trainer.pipeline().stream(), range, whole, host);
      if (info.placement.is_split()) host = gather_whole(mesh.tensor(), info.placement, host);
      if (mesh.place().tensor == 0) sink(name, host);
    });
  }
}

std::string state_json(const RunState& state, const engine::Optimizer& optimizer) {
  nlohmann::json json{{"step", state.step},
                      {"seed", state.seed},
                      {"data", state.data},
                      {"epoch", state.position.epoch},
                      {"next_sequence", state.position.next},
                      {"optimizer", engine::name_of(optimizer.options().kind)},
                      {"optimizer_steps", optimizer.steps()},
                      {"optimizer_states", optimizer.state_names()},
                      {"settings", state.settings}};
  return json.dump(2) + "\n";
}

// Files that make the folder complete for Hugging Face: all small ones but the weights and what is written anew.
void copy_companions(const fs::path& from, const fs::path& to) {
  if (from.empty()) return;
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const bool wanted = entry.is_regular_file() &&
                        (name.ends_with(".json") || name.ends_with(".txt") || name.ends_with(".model") || name.ends_with(".jinja"));
    if (!wanted || name == "config.json" || name == state_file || name.ends_with(".index.json")) continue;
    fs::copy_file(entry.path(), to / name, fs::copy_options::overwrite_existing);
  }
}

// Where a checkpoint of an earlier step stays when a newer one takes its name.
fs::path earlier(const fs::path& folder, std::int64_t step) { return fmt::format("{}.step-{}", folder.string(), step); }

// Of the earlier ones the last `most` stay.
void remove_earlier(const fs::path& folder, std::int64_t most) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  const std::string begin = folder.filename().string() + ".step-";
  for (const auto& entry : fs::directory_iterator(folder.has_parent_path() ? folder.parent_path() : fs::path("."))) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(begin) || name.find_first_not_of("0123456789", begin.size()) != std::string::npos || name.size() > begin.size() + 18)
      continue;
    if (name.size() > begin.size() && find_checkpoint(entry.path())) found.emplace_back(std::stoll(name.substr(begin.size())), entry.path());
  }
  std::ranges::sort(found, std::greater<>());
  std::error_code ignored;
  for (std::size_t i = static_cast<std::size_t>(most); i < found.size(); ++i) fs::remove_all(found[i].second, ignored);
}

// The new folder takes the place of the old one in a single step where the system can swap names.
void swap_in(const fs::path& fresh, const fs::path& folder, std::int64_t keep) {
  const auto before = keep > 1 ? find_checkpoint(folder) : std::nullopt;
  const fs::path old = folder.string() + ".old";
  std::error_code ignored;
  if (fs::exists(folder)) {
    constexpr unsigned rename_exchange = 2;
    if (syscall(SYS_renameat2, AT_FDCWD, fresh.c_str(), AT_FDCWD, folder.c_str(), rename_exchange) != 0) {
      fs::remove_all(old, ignored);
      rename_and_sync(folder, old);
      rename_and_sync(fresh, folder);
    }
    const fs::path& replaced = fs::exists(fresh) ? fresh : old;
    if (before) {
      fs::remove_all(earlier(folder, before->step), ignored);
      rename_and_sync(replaced, earlier(folder, before->step));
      remove_earlier(folder, keep - 1);
    }
    fs::remove_all(fresh, ignored);
    fs::remove_all(old, ignored);
  } else {
    rename_and_sync(fresh, folder);
  }
  sync_folder(folder.has_parent_path() ? folder.parent_path() : fs::path("."));
}

fs::path without_slash(const fs::path& folder) {
  const fs::path plain = fs::absolute(folder).lexically_normal();
  return plain.has_filename() ? plain : plain.parent_path();
}

// Where a checkpoint is written until it is whole.
fs::path aside_of(const fs::path& folder) { return folder.string() + ".saving"; }

void make_aside(const fs::path& aside) {
  std::error_code failed;
  fs::remove_all(aside, failed);
  fs::create_directories(aside, failed);
  if (failed) throw FileError(fmt::format("{}: cannot be made: {}", aside.string(), failed.message()));
}

}  // namespace

void check_can_save(const fs::path& target) {
  const fs::path folder = without_slash(target), aside = aside_of(folder);
  if (fs::exists(folder) && !fs::is_directory(folder))
    throw FileError(fmt::format("{}: is a file: --save wants a folder", folder.string()));
  if (fs::exists(folder) && !fs::is_empty(folder) && !fs::exists(folder / "config.json") && !models::is_adapter_folder(folder))
    throw FileError(fmt::format("{}: holds files but no model: saving would replace it; name a new folder", folder.string()));
  make_aside(aside);
  std::error_code ignored;
  fs::remove_all(aside, ignored);
}

std::optional<SavedCheckpoint> find_checkpoint(const fs::path& folder) {
  const fs::path file = folder / state_file;
  struct stat info{};
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

// What this rank writes: at once, or kept until the thread does.
struct Saving::Part {
  models::SafetensorsWriter weights;
  std::optional<models::SafetensorsWriter> moments;
  std::vector<std::pair<std::string, std::vector<float>>> kept_weights, kept_moments;
};

Saving::Saving(const SaveOptions& options, engine::Trainer& trainer, const models::ModelSource& model, const RunState& state) try
    : options_(options), trainer_(trainer), step_(state.step) {
  const fs::path folder = without_slash(options.folder), aside = aside_of(folder);
  comm::Communicator& world = trainer.mesh().world();
  engine::Optimizer& optimizer = trainer.optimizer();
  const engine::Graph& graph = trainer.model().graph();
  const bool adapter = options.lora != nullptr;
  const auto states = optimizer.state_names();
  const models::SafetensorsLayout weights(weight_tensors(model.config, graph, adapter), models::SafetensorsLayout::default_shard_bytes,
                                          adapter ? models::adapter_stem : "model");
  const models::SafetensorsLayout moments(optimizer_tensors(graph, states), UINT64_MAX, "optimizer");
  if (world.rank() == 0) {
    make_aside(aside);
    models::SafetensorsWriter::create(aside, weights);
    if (!states.empty()) models::SafetensorsWriter::create(aside, moments);
  }
  world.barrier();
  part_.reset(new Part{models::SafetensorsWriter::open(aside, weights), {}, {}, {}});
  if (!states.empty()) part_->moments.emplace(models::SafetensorsWriter::open(aside, moments));
  const auto into = [&](models::SafetensorsWriter& writer, auto& kept) -> TensorSink {
    return [&, background = options.in_background](const std::string& name, std::vector<float>& values) {
      if (background)
        kept.emplace_back(name, values);
      else
        writer.write(name, 0, values.data(), values.size() * sizeof(float));
    };
  };
  take_part(
      trainer,
      [&](const engine::ParameterInfo& info) {
        return !adapter ? info.name : is_adapter_term(info) ? models::adapter_tensor_name(info.name) : "";
      },
      [&](int stage) { return trainer.model().parameters(stage).values(); }, into(part_->weights, part_->kept_weights));
  for (size_t i = 0; i < states.size(); ++i)
    take_part(
        trainer, [&](const engine::ParameterInfo& info) { return info.frozen ? "" : info.name + "." + states[i]; },
        [&](int stage) { return optimizer.state(stage, i); }, into(*part_->moments, part_->kept_moments));
  if (world.rank() == 0)
    commit_ = [=, lora = adapter ? std::optional(*options.lora) : std::nullopt, config = model.config,
               model_folder = model.folder.value_or(""), has_moments = !states.empty(), text = state_json(state, optimizer),
               graph = trainer.model().graph_ptr(), keep = options.keep] {
      models::SafetensorsWriter::open(aside, weights).commit();
      if (has_moments) models::SafetensorsWriter::open(aside, moments).commit();
      if (lora) {
        write_file_atomically(aside / models::adapter_config_file, models::adapter_config_json(*lora, *graph, model_folder.string()));
      } else {
        copy_companions(model_folder, aside);
        write_file_atomically(aside / "config.json", models::config_json(config, "float32"));
      }
      write_file_atomically(aside / state_file, text);
      swap_in(aside, folder, keep);
    };
  if (options.in_background)
    thread_ = std::thread([this] {
      try {
        write(*part_);
      } catch (...) {
        error_ = std::current_exception();
      }
      written_ = true;
    });
  else
    write(*part_), written_ = true;
} catch (const FileError& error) {  // a full disk is no wrong usage: the run has failed
  throw Error(error.what());
}

Saving::~Saving() {
  if (thread_.joinable()) thread_.join();
}

void Saving::write(Part& part) {
  for (auto& [name, values] : part.kept_weights) part.weights.write(name, 0, values.data(), values.size() * sizeof(float)), values = {};
  part.weights.sync();
  if (!part.moments) return;
  for (auto& [name, values] : part.kept_moments) part.moments->write(name, 0, values.data(), values.size() * sizeof(float)), values = {};
  part.moments->sync();
}

void Saving::finish() try {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(error_);
  trainer_.mesh().world().barrier();
  if (commit_) commit_();
  trainer_.mesh().world().barrier();
} catch (const FileError& error) {
  throw Error(error.what());
}

void save_checkpoint(const SaveOptions& options, engine::Trainer& trainer, const models::ModelSource& model, const RunState& state) {
  Saving(options, trainer, model, state).finish();
}

RunState load_checkpoint(const fs::path& folder, engine::Trainer& trainer, const models::ModelSource& model) {
  const fs::path file = folder / state_file;
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

  if (models::is_adapter_folder(folder)) {
    const models::Adapter adapter = models::Adapter::open(folder);
    if (model.folder)
      models::load_weights(trainer.model(), trainer.pipeline().stream(), model.config, models::WeightFiles::open(*model.folder), &adapter);
    else
      models::load_adapter(trainer.model(), trainer.pipeline().stream(), adapter);
  } else {
    models::load_weights(trainer.model(), trainer.pipeline().stream(), model.config, models::WeightFiles::open(folder));
  }
  engine::Optimizer& optimizer = trainer.optimizer();
  const auto states = optimizer.state_names();
  const char* kind = engine::name_of(optimizer.options().kind);
  if (root.at("optimizer").string() != kind)
    throw FileError(fmt::format("{}: was saved by the optimizer {}, not {}: give --optimizer {}", file.string(),
                                root.at("optimizer").string(), kind, root.at("optimizer").string()));
  optimizer.set_steps(root.at("optimizer_steps").integer(0, most));
  if (states.empty()) return state;
  const models::WeightFiles moments = models::WeightFiles::open(folder / optimizer_file);
  std::vector<float> host;
  const auto load = [&](size_t i, int stage) {
    float* const state_values = optimizer.state(stage, i);
    for_each_parameter(trainer.model(), stage, false, [&](const engine::ParameterRange& range, const engine::ParameterInfo& info) {
      if (info.frozen) return;
      const models::StoredTensor& stored = moments.at(info.name + "." + states[i]);
      const auto elements = static_cast<std::size_t>(info.whole_shape().count());
      if (stored.elements != elements)
        throw FileError(fmt::format("{}: {} has {} elements, the model needs {}", stored.file, stored.name, stored.elements, elements));
      host.resize(elements);
      models::read_f32(stored, 0, elements, host.data());
      trainer.model().parameters(stage).load_state(trainer.pipeline().stream(), range, state_values, host);
    });
    optimizer.store_state(stage, i);
  };
  for (size_t i = 0; i < states.size(); ++i)
    for (int stage : trainer.model().stages()) load(i, stage);
  return state;
}

}  // namespace ppengine::runs
