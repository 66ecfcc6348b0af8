// The state of a replica, kept in memory.
#include <ppengine/runs/elastic/kept_state.hpp>

#include <fmt/core.h>

#include <limits>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/engine/weights/optimizer.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>
#include <ppengine/runs/training/checkpoint_parts.hpp>

namespace ppengine::runs {
namespace {

namespace fs = std::filesystem;

std::string stem_of(int part) { return fmt::format("part-{}", part); }
fs::path step_file(const fs::path& folder, int part) { return folder / (stem_of(part) + ".json"); }

std::string weight_name(const engine::ParameterInfo& info) { return "weight." + info.name; }
std::string state_name(std::size_t state, const engine::ParameterInfo& info) { return fmt::format("state{}.{}", state, info.name); }

// Calls visit(stage, range, info) for the parameters of this rank that training changes.
template <class Visit>
void for_each_trained(engine::Trainer& trainer, Visit&& visit) {
  for (engine::StageId stage : trainer.model().stages())
    for_each_parameter(trainer.model(), stage, false, [&](const engine::ParameterRange& range, const engine::ParameterInfo& info) {
      if (!info.frozen && trainer.model().parameters(stage).bucket_of(range).reduced()) visit(stage, range, info);
    });
}

double number(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

// The parts of all ranks, of which one tensor may lie in several.
class Parts {
 public:
  Parts(const fs::path& folder, const comm::MeshShape& shape) : tensor_(shape.tensor) {
    for (int part = 0; part < parts_of(shape); ++part)
      files_.push_back(models::WeightFiles::open(folder / (stem_of(part) + ".safetensors")));
  }
  // The whole tensor.
  std::vector<float> read(const std::string& name, const engine::ParameterInfo& info) const {
    if (!info.placement.is_split()) return read(name, 0);
    std::vector<float> whole(static_cast<std::size_t>(info.placement.whole.count()));
    engine::Placement placement = info.placement;
    for (placement.rank = 0; placement.rank < placement.ranks; ++placement.rank)
      engine::put_part(placement, read(name, placement.rank), whole);
    return whole;
  }

 private:
  std::vector<float> read(const std::string& name, int tensor_rank) const {
    for (std::size_t part = static_cast<std::size_t>(tensor_rank); part < files_.size(); part += static_cast<std::size_t>(tensor_))
      if (const models::StoredTensor* const found = files_[part].find(name)) {
        std::vector<float> values(found->elements);
        models::read_f32(*found, 0, found->elements, values.data());
        return values;
      }
    throw FileError(fmt::format("{}: {} is missing", files_.front().path().string(), name));
  }

  int tensor_;
  std::vector<models::WeightFiles> files_;
};

}  // namespace

int part_of(const comm::Mesh& mesh) { return mesh.place().pipeline * mesh.shape().tensor + mesh.place().tensor; }
int parts_of(const comm::MeshShape& shape) { return shape.pipeline * shape.tensor; }

void write_part(const fs::path& folder, engine::Trainer& trainer, const KeptStep& step) {
  engine::Optimizer& optimizer = trainer.optimizer();
  const std::size_t states = optimizer.state_names().size();
  const int part = part_of(trainer.mesh());
  fs::create_directories(folder);
  std::vector<models::TensorSpec> specs;
  const auto add = [&](const std::string& name, const engine::ParameterRange& range) {
    for (const models::TensorSpec& one : specs)
      if (one.name == name) return;  // used by two stages of this rank
    specs.push_back({name, models::StoredType::f32, {static_cast<std::int64_t>(range.count)}});
  };
  for_each_trained(trainer, [&](engine::StageId, const engine::ParameterRange& range, const engine::ParameterInfo& info) {
    add(weight_name(info), range);
    for (std::size_t i = 0; i < states; ++i) add(state_name(i, info), range);
  });
  auto writer = models::SafetensorsWriter::create(folder, models::SafetensorsLayout(std::move(specs), UINT64_MAX, stem_of(part)));
  ops::Stream stream(trainer.model().device());  // that of the pipeline may be in use
  std::vector<float> host;
  const auto write = [&](const std::string& name, engine::StageId stage, const engine::ParameterRange& range, const float* flat) {
    host.resize(range.count);
    trainer.model().parameters(stage).save(stream, range, flat, host);
    writer.write(name, 0, host.data(), host.size() * sizeof(float));
  };
  for_each_trained(trainer, [&](engine::StageId stage, const engine::ParameterRange& range, const engine::ParameterInfo& info) {
    write(weight_name(info), stage, range, trainer.model().parameters(stage).values());
  });
  for (engine::StageId stage : trainer.model().stages())
    for (std::size_t i = 0; i < states; ++i) {
      const float* const flat = optimizer.state(stage, i);
      for_each_trained(trainer, [&](engine::StageId of, const engine::ParameterRange& range, const engine::ParameterInfo& info) {
        if (of == stage) write(state_name(i, info), stage, range, flat);
      });
    }
  writer.commit();
  const nlohmann::json json{{"step", step.step},
                            {"optimizer_steps", optimizer.steps()},
                            {"epoch", step.position.epoch},
                            {"next_sequence", step.position.next},
                            {"best", step.best},
                            {"loss", step.last.loss},
                            {"grad_norm", step.last.grad_norm},
                            {"lr", step.last.lr},
                            {"tokens", step.last.tokens},
                            {"seconds", step.last.seconds},
                            {"skipped", step.last.skipped}};
  write_file_atomically(step_file(folder, part), json.dump());  // last: without it the part is not whole
}

std::optional<KeptStep> find_kept(const fs::path& folder, int parts) {
  std::optional<KeptStep> found;
  for (int part = 0; part < parts; ++part) {
    std::error_code failed;
    if (!fs::exists(step_file(folder, part), failed)) return std::nullopt;
    const nlohmann::json json = read_json(step_file(folder, part), 1 << 20);
    KeptStep step;
    step.step = json.at("step");
    step.position = {json.at("epoch"), json.at("next_sequence")};
    step.best = json.at("best").is_number() ? number(json, "best") : std::numeric_limits<double>::infinity();
    step.last.step = step.step;
    step.last.loss = number(json, "loss");
    step.last.grad_norm = number(json, "grad_norm");
    step.last.lr = number(json, "lr");
    step.last.seconds = number(json, "seconds");
    step.last.tokens = json.at("tokens");
    step.last.skipped = json.at("skipped");
    if (found && found->step != step.step) return std::nullopt;
    found = step;
  }
  return found;
}

void load_kept(const fs::path& folder, engine::Trainer& trainer) {
  const Parts parts(folder, trainer.mesh().shape());
  engine::Optimizer& optimizer = trainer.optimizer();
  ops::Stream& stream = trainer.pipeline().stream();
  for_each_trained(trainer, [&](engine::StageId stage, const engine::ParameterRange& range, const engine::ParameterInfo& info) {
    trainer.model().parameters(stage).load(stream, range, parts.read(weight_name(info), info));
  });
  for (engine::StageId stage : trainer.model().stages()) {
    trainer.model().parameters(stage).refresh(stream);
    for (std::size_t i = 0; i < optimizer.state_names().size(); ++i) {
      float* const flat = optimizer.state(stage, i);
      for_each_trained(trainer, [&](engine::StageId of, const engine::ParameterRange& range, const engine::ParameterInfo& info) {
        if (of == stage) trainer.model().parameters(stage).load_state(stream, range, flat, parts.read(state_name(i, info), info));
      });
      optimizer.store_state(stage, i);
    }
  }
  stream.wait();
  optimizer.set_steps(read_json(step_file(folder, 0), 1 << 20).at("optimizer_steps"));
}

}  // namespace ppengine::runs
