// Checkpoints, written aside by all ranks and put in place at the end.
#include <ppengine/runs/training/saving.hpp>

#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/comm/gather.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/weights/optimizer.hpp>
#include <ppengine/models/files/adapter.hpp>
#include <ppengine/models/files/checksums.hpp>
#include <ppengine/models/files/parameters.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>
#include <ppengine/models/files/save_folder.hpp>
#include <ppengine/runs/training/checkpoint_parts.hpp>

namespace ppengine::runs {
namespace {

namespace fs = std::filesystem;

// The calling thread runs when computing ones leave room.
void give_way() { (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), 10); }

models::TensorSpec spec_of(std::string name, const engine::ParameterInfo& info) {
  const auto dims = info.whole_shape().dims();
  return {std::move(name), models::StoredType::f32, {dims.begin(), dims.end()}};
}

std::vector<models::TensorSpec> weight_tensors(const SaveOptions& options, const engine::Graph& graph) {
  std::vector<models::TensorSpec> tensors;
  if (options.lora) {
    for (const engine::ParameterInfo& one : graph.parameters())
      if (models::is_adapter_parameter(one.name)) tensors.push_back(spec_of(models::adapter_tensor_name(one.name), one));
  } else if (options.model) {
    for (const models::Parameter& one : models::list_parameters(options.model->config))
      tensors.push_back({one.name, models::StoredType::f32, one.shape});
  } else {
    for (const engine::ParameterInfo& one : graph.parameters()) tensors.push_back(spec_of(one.name, one));
  }
  return tensors;
}

// One state of the optimizer for each parameter that is trained.
std::vector<models::TensorSpec> optimizer_tensors(const engine::Graph& graph, const std::vector<std::string>& states) {
  std::vector<models::TensorSpec> tensors;
  for (const std::string& state : states)
    for (const engine::ParameterInfo& one : graph.parameters())
      if (!one.frozen) tensors.push_back(spec_of(one.name + "." + state, one));
  return tensors;
}

// The parts that tensor-parallel ranks have of one tensor, put together; all of them call it.
std::vector<float> gather_whole(comm::Communicator& tensor, engine::Placement placement, const std::vector<float>& part) {
  std::vector<float> whole(static_cast<std::size_t>(placement.whole.count()));
  const auto parts = comm::gather(tensor, part);
  for (placement.rank = 0; placement.rank < placement.ranks; ++placement.rank)
    engine::put_part(placement, parts[static_cast<std::size_t>(placement.rank)], whole);  // parts need not be even
  return whole;
}

// Where a tensor is put together, and what is done with it there.
using TensorRoom = std::function<std::vector<float>&(const std::string& name)>;
using TensorSink = std::function<void(const std::string& name, const std::vector<float>& values)>;
using TensorName = std::function<std::string(const engine::ParameterInfo&)>;  // empty: not in the file

// All ranks call it: sharded data-parallel ranks put their parts together, tensor-parallel ones theirs; one of them writes.
void take_part(engine::Trainer& trainer, const TensorName& name_of, const std::function<const float*(engine::StageId stage)>& flat,
               const TensorRoom& room, const TensorSink& sink) {
  std::vector<float> part;
  const comm::Mesh& mesh = trainer.mesh();
  for (engine::StageId stage : trainer.model().stages()) {
    const float* const whole = trainer.whole(stage, flat(stage));
    if (mesh.place().data != 0) continue;
    for_each_parameter(trainer.model(), stage, true, [&](const engine::ParameterRange& range, const engine::ParameterInfo& info) {
      const std::string name = name_of(info);
      if (name.empty()) return;
      std::vector<float>& host = mesh.place().tensor == 0 ? room(name) : part;
      host.resize(range.count);
      trainer.model().parameters(stage).save(trainer.pipeline().stream(), range, whole, host);
      if (info.placement.is_split()) host = gather_whole(mesh.tensor(), info.placement, host);
      if (mesh.place().tensor == 0) sink(name, host);
    });
  }
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

// What this rank writes, and what the first rank needs to complete the folder.
struct Saving::Part {
  fs::path folder, aside;
  models::SafetensorsLayout weights, moments;
  std::vector<std::string> kept_weights = {}, kept_moments = {};  // to be written by the thread
  bool has_moments = false, finite_only = true;
  std::string state = {}, config = {};

  void write(const KeptTensors* kept) const {
    write(weights, kept_weights, kept);
    if (has_moments) write(moments, kept_moments, kept);
  }

 private:
  void write(const models::SafetensorsLayout& layout, const std::vector<std::string>& names, const KeptTensors* kept) const {
    auto writer = models::SafetensorsWriter::open(aside, layout);
    for (const std::string& name : names) writer.write(name, 0, kept->at(name).data(), kept->at(name).size() * sizeof(float));
    writer.sync();
  }
};

Saving::Saving(SaveOptions options, engine::Trainer& trainer, const RunState& state) try
    : options_(std::move(options)), trainer_(trainer), step_(state.step) {
  comm::Communicator& world = trainer.mesh().world();
  engine::Optimizer& optimizer = trainer.optimizer();
  const engine::Graph& graph = trainer.model().graph();
  const auto states = optimizer.state_names();
  const fs::path folder = models::save_target(options_.folder);
  part_.reset(new Part{folder, models::files_aside(folder),
                       models::SafetensorsLayout(weight_tensors(options_, graph), models::SafetensorsLayout::default_shard_bytes,
                                                 options_.lora ? models::adapter_stem : "model"),
                       models::SafetensorsLayout(optimizer_tensors(graph, states), UINT64_MAX, "optimizer")});
  part_->has_moments = !states.empty();
  part_->finite_only = state.finite_only;
  part_->state = state_json(state, optimizer);
  if (options_.lora)
    part_->config = models::adapter_config_json(*options_.lora, graph, options_.model ? options_.model->name : "");
  else if (options_.model)
    part_->config = models::config_json(options_.model->config, "float32");
  if (world.rank() == 0) {
    models::begin_save(folder);
    models::SafetensorsWriter::create(part_->aside, part_->weights);
    if (part_->has_moments) models::SafetensorsWriter::create(part_->aside, part_->moments);
  }
  world.barrier();
  std::vector<float> one;
  const auto room = [&](const std::string& name) -> std::vector<float>& { return options_.kept ? (*options_.kept)[name] : one; };
  const auto take = [&](const models::SafetensorsLayout& layout, std::vector<std::string>& kept, const TensorName& name_of,
                        const auto& flat) {
    auto writer = models::SafetensorsWriter::open(part_->aside, layout);
    take_part(trainer, name_of, flat, room, [&](const std::string& name, const std::vector<float>& values) {
      if (options_.kept)
        kept.push_back(name);
      else
        writer.write(name, 0, values.data(), values.size() * sizeof(float));
    });
  };
  const auto weight_name = [&](const engine::ParameterInfo& info) -> std::string {
    if (!options_.lora) return info.name;
    return models::is_adapter_parameter(info.name) ? models::adapter_tensor_name(info.name) : "";
  };
  take(part_->weights, part_->kept_weights, weight_name, [&](engine::StageId stage) { return trainer.model().parameters(stage).values(); });
  for (std::size_t i = 0; i < states.size(); ++i)
    take(
        part_->moments, part_->kept_moments,
        [&](const engine::ParameterInfo& info) { return info.frozen ? std::string() : info.name + "." + states[i]; },
        [&](engine::StageId stage) { return optimizer.state(stage, i); });
  start([this] { part_->write(options_.kept); });
} catch (const FileError& error) {  // a full disk is no wrong usage: the run has failed
  throw Error(error.what());
}

Saving::~Saving() {
  if (thread_.joinable()) thread_.join();
}

void Saving::start(std::function<void()> work) {
  const auto run = [this, work = std::move(work)] {
    try {
      work();
    } catch (...) {
      error_ = std::current_exception();
    }
    idle_ = true;
  };
  idle_ = false;
  if (options_.kept)
    thread_ = std::thread([run] {
      give_way();
      run();
    });
  else
    run();
}

void Saving::next_phase() try {
  if (thread_.joinable()) thread_.join();
  if (error_) std::rethrow_exception(error_);
  phase_ = phase_ == Phase::writing ? Phase::committing : Phase::done;
  if (phase_ == Phase::committing && trainer_.mesh().world().rank() == 0) start([this] { commit(); });
} catch (const FileError& error) {
  throw Error(error.what());
}

bool Saving::advance() {
  if (phase_ != Phase::done && trainer_.mesh().world().allreduce_value(std::int64_t{!idle_}, comm::Reduce::max) == 0) next_phase();
  return phase_ == Phase::done;
}

void Saving::finish() {
  while (phase_ != Phase::done) {
    if (thread_.joinable()) thread_.join();
    advance();
  }
}

void Saving::commit() const {
  const Part& part = *part_;
  models::SafetensorsWriter::open(part.aside, part.weights).commit();
  if (part.has_moments) models::SafetensorsWriter::open(part.aside, part.moments).commit();
  if (options_.model && !options_.lora) copy_companions(options_.model->folder.value_or(""), part.aside, part.folder);
  if (!part.config.empty()) write_file_atomically(part.aside / (options_.lora ? models::adapter_config_file : "config.json"), part.config);
  write_file_atomically(part.aside / state_file, part.state);
  commit_checkpoint(part.folder, {.step = step_, .keep = options_.keep, .finite_only = part.finite_only});
}

void save_checkpoint(const SaveOptions& options, engine::Trainer& trainer, const RunState& state) {
  Saving(options, trainer, state).finish();
}

void save_checkpoint(const fs::path& folder, engine::Trainer& trainer, const RunState& state) {
  save_checkpoint(SaveOptions{.folder = folder}, trainer, state);
}

void save_checkpoint(const fs::path& folder, engine::Trainer& trainer) {
  RunState state;
  state.step = trainer.optimizer().steps();
  save_checkpoint(folder, trainer, state);
}

}  // namespace ppengine::runs
