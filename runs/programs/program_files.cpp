// Saved folders of program runs, and outputs of evaluations.
#include <ppengine/runs/programs/program_files.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/engine/pipeline.hpp>
#include <ppengine/engine/weights/optimizer.hpp>
#include <ppengine/models/files/save_folder.hpp>
#include <ppengine/models/import/stored.hpp>
#include <ppengine/runs/training/checkpoint_parts.hpp>

namespace ppengine::runs {
namespace {

namespace fs = std::filesystem;

// Entries of the state dict that training changes are written as f32, all others as they are.
std::vector<models::TensorSpec> weight_tensors(const models::Program& program, const engine::Graph& graph) {
  std::vector<models::TensorSpec> tensors;
  for (const std::string& name : program.state()) {
    const models::StoredTensor& stored = program.tensor(name);
    const bool trained = static_cast<bool>(graph.find_parameter(program.graph_name(name)));
    tensors.push_back({name, trained ? models::StoredType::f32 : stored.type, stored.shape});
  }
  return tensors;
}

bool is_running(const std::vector<std::string>& running, const std::string& name) {
  return std::ranges::find(running, name) != running.end();
}

std::vector<models::TensorSpec> optimizer_tensors(const engine::Graph& graph, const std::vector<std::string>& running,
                                                  const std::vector<std::string>& states) {
  std::vector<models::TensorSpec> tensors;
  for (const std::string& state : states)
    for (const engine::ParameterInfo& one : graph.parameters())
      if (!one.frozen && !is_running(running, one.name))
        tensors.push_back({one.name + "." + state, models::StoredType::f32, {one.shape.dims().begin(), one.shape.dims().end()}});
  return tensors;
}

// Calls visit(store, range, info, flat) for each parameter that this rank is the one to write.
template <class Visit>
void for_each_owned(engine::Trainer& trainer, const std::function<const float*(engine::StageId stage)>& flat, Visit&& visit) {
  for (engine::StageId stage : trainer.model().stages()) {
    const float* const whole = trainer.whole(stage, flat(stage));
    if (trainer.mesh().place().data != 0) continue;
    engine::ParameterStore& store = trainer.model().parameters(stage);
    for (const engine::ParameterRange& range : store.ranges())
      if (trainer.model().owner(range.id) == stage) visit(store, range, trainer.model().graph().parameters()[range.id], whole);
  }
}

}  // namespace

std::vector<float> stored_parameter(const models::Program& program, const std::string& name) {
  return models::stored_floats(program.tensor(name));
}

void save_program(const SaveOptions& options, engine::Trainer& trainer, const models::Program& program, const models::ProgramGraph& built,
                  const RunState& state, std::int64_t forwards) {
  const fs::path folder = models::save_target(options.folder), aside = models::files_aside(folder);
  comm::Communicator& world = trainer.mesh().world();
  const engine::Graph& graph = trainer.model().graph();
  engine::Optimizer& optimizer = trainer.optimizer();
  const auto states = optimizer.state_names();
  const models::SafetensorsLayout weights(weight_tensors(program, graph), UINT64_MAX);
  const models::SafetensorsLayout moments(optimizer_tensors(graph, built.running, states), UINT64_MAX, "optimizer");
  if (world.rank() == 0) {
    models::begin_save(folder);
    models::SafetensorsWriter::create(aside, weights);
    if (!states.empty()) models::SafetensorsWriter::create(aside, moments);
  }
  world.barrier();
  auto writer = models::SafetensorsWriter::open(aside, weights);
  std::vector<float> host;
  for_each_owned(
      trainer, [&](engine::StageId stage) { return trainer.model().parameters(stage).values(); },
      [&](engine::ParameterStore& store, const engine::ParameterRange& range, const engine::ParameterInfo& info, const float* flat) {
        host.resize(range.count);
        store.save(trainer.pipeline().stream(), range, flat, host);
        for (const std::string& name : program.state())  // tied weights have several names
          if (program.graph_name(name) == info.name) writer.write(name, 0, host.data(), host.size() * sizeof(float));
      });
  if (world.rank() == 0)
    for (const std::string& name : program.state()) {
      const models::StoredTensor& stored = program.tensor(name);
      const engine::ParameterId id = graph.find_parameter(program.graph_name(name));
      if (id) {  // a parameter that no stage uses stays as it was
        const bool used = std::ranges::any_of(
            graph.nodes(), [&](const engine::Node& node) { return std::ranges::find(node.parameters, id) != node.parameters.end(); });
        if (used) continue;
        const auto values = models::stored_floats(stored);
        writer.write(name, 0, values.data(), values.size() * sizeof(float));
        continue;
      }
      std::vector<std::byte> bytes(stored.data, stored.data + stored.bytes);
      const auto times = std::ranges::count(built.counters, name);
      if (times > 0 && stored.type == models::StoredType::i64 && stored.elements == 1) {
        std::int64_t value;
        std::memcpy(&value, bytes.data(), sizeof value);
        value += forwards * times;
        std::memcpy(bytes.data(), &value, sizeof value);
      }
      writer.write(name, 0, bytes.data(), bytes.size());
    }
  writer.sync();
  if (!states.empty()) {
    auto more = models::SafetensorsWriter::open(aside, moments);
    for (std::size_t i = 0; i < states.size(); ++i)
      for_each_owned(
          trainer, [&](engine::StageId stage) { return optimizer.state(stage, i); },
          [&](engine::ParameterStore& store, const engine::ParameterRange& range, const engine::ParameterInfo& info, const float* flat) {
            if (info.frozen || is_running(built.running, info.name)) return;
            host.resize(range.count);
            store.save(trainer.pipeline().stream(), range, flat, host);
            more.write(info.name + "." + states[i], 0, host.data(), host.size() * sizeof(float));
          });
    more.sync();
  }
  world.barrier();
  if (world.rank() == 0) {
    models::SafetensorsWriter::open(aside, weights).commit();
    if (!states.empty()) models::SafetensorsWriter::open(aside, moments).commit();
    fs::copy_file(program.file(), aside / "program.pt2", fs::copy_options::overwrite_existing);
    write_file_atomically(aside / state_file, state_json(state, optimizer));
    commit_checkpoint(folder, {.step = state.step, .keep = options.keep, .finite_only = state.finite_only});
  }
  world.barrier();
}

RunState load_program_state(const fs::path& folder, engine::Trainer& trainer) {
  engine::Optimizer& optimizer = trainer.optimizer();
  RunState state = read_state(folder, optimizer);
  const auto states = optimizer.state_names();
  const nlohmann::json saved = read_json(folder / state_file, 1 << 20);
  if (JsonPlace(saved, (folder / state_file).string()).at("optimizer_states").json() != nlohmann::json(states))
    throw FileError(fmt::format("{}: was saved by another optimizer: give the same --optimizer", (folder / state_file).string()));
  if (states.empty()) return state;
  const models::WeightFiles moments = models::WeightFiles::open(folder / optimizer_file);
  for (std::size_t i = 0; i < states.size(); ++i)
    for (engine::StageId stage : trainer.model().stages()) {
      engine::ParameterStore& store = trainer.model().parameters(stage);
      float* const flat = optimizer.state(stage, i);
      for (const engine::ParameterRange& range : store.ranges()) {
        const engine::ParameterInfo& info = trainer.model().graph().parameters()[range.id];
        if (!moments.find(info.name + "." + states[i])) continue;  // a running statistic
        const auto values = models::stored_floats(moments.at(info.name + "." + states[i]));
        if (values.size() != static_cast<std::size_t>(info.shape.count()))
          throw FileError(fmt::format("{}: {} has another size", (folder / optimizer_file).string(), info.name));
        store.load_state(trainer.pipeline().stream(), range, flat, values);
      }
      optimizer.store_state(stage, i);
    }
  return state;
}

ProgramOutputs::ProgramOutputs(const std::string& file, const models::ProgramGraph& program, std::int64_t samples,
                               comm::Communicator& world) {
  const fs::path path = file;
  if (path.extension() != ".safetensors") throw ConfigError(fmt::format("--outputs {}: the file's name must end in .safetensors", file));
  std::vector<models::TensorSpec> tensors;
  for (std::size_t i = 0; i < program.outputs.size(); ++i) {
    const models::ProgramOutput& one = program.outputs[i];
    if (!one.batched) continue;
    Part part{program.outputs.size() == 1 ? "output" : fmt::format("output.{}", i), one.offset, 1};
    for (std::int64_t size : one.shape) part.width *= size;
    std::vector<std::int64_t> shape{samples};
    shape.insert(shape.end(), one.shape.begin(), one.shape.end());
    tensors.push_back({part.name, models::StoredType::f32, std::move(shape)});
    width_ += part.width;
    parts_.push_back(std::move(part));
  }
  if (parts_.empty()) throw ConfigError("--outputs: no output of the program has the batch as its first dimension");
  const models::SafetensorsLayout layout(std::move(tensors), UINT64_MAX, path.stem().string());
  const fs::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (world.rank() == 0) models::SafetensorsWriter::create(folder, layout);
  world.barrier();
  writer_ = models::SafetensorsWriter::open(folder, layout);
}

void ProgramOutputs::write(std::int64_t first, std::int64_t count, std::span<const float> rows) {
  for (const Part& part : parts_) {
    const auto width = static_cast<std::size_t>(part.width);
    host_.resize(static_cast<std::size_t>(count) * width);
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i)
      std::copy_n(rows.data() + i * static_cast<std::size_t>(width_) + static_cast<std::size_t>(part.offset), width,
                  host_.data() + i * width);
    writer_->write(part.name, static_cast<std::uint64_t>(first) * width * sizeof(float), host_.data(), host_.size() * sizeof(float));
  }
}

void ProgramOutputs::finish(comm::Communicator& world) {
  writer_->sync();
  world.barrier();
  if (world.rank() == 0) writer_->commit();
  world.barrier();
}

}  // namespace ppengine::runs
