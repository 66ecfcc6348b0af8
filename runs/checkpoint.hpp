// Checkpoints: a Hugging Face folder plus the optimizer's state and where the run was. Every rank writes its part; files take
// their names when all are whole, and until then those before stay (models/files/save_folder.hpp). Other files in the folder are left
// alone.
//
// A graph of your own is saved and resumed in two lines, on any number of ranks, stages and schedules:
//
//   runs::save_checkpoint("run/", trainer);                                                    // all ranks, after any step
//   if (runs::find_checkpoint("run/")) step = runs::load_checkpoint("run/", trainer).step;     // all ranks, before the first
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include <ppengine/engine/trainer.hpp>
#include <ppengine/models/data/data.hpp>
#include <ppengine/models/source.hpp>

namespace ppengine::runs {

struct RunState {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  models::DataPosition position;
  std::string data;                             // what --data was
  std::map<std::string, std::string> settings;  // what the run was made with, by the flag's name
  bool finite_only = true;  // a NaN or an infinity in the weights or moments is an Error, and the checkpoint before stays
};

// A whole checkpoint in the folder: its step, and what tells it from one that was there before. Nothing where there is none: one that
// was not finished lies elsewhere and is not looked at.
struct SavedCheckpoint {
  std::int64_t step = 0;
  std::string mark;
};
std::optional<SavedCheckpoint> find_checkpoint(const std::filesystem::path& folder);

// What the run of a checkpoint was made with; empty where there is none, or where it does not say.
std::map<std::string, std::string> saved_settings(const std::filesystem::path& folder);

// Any graph, all ranks: parameters by their names in model.safetensors, the optimizer's state beside them, and the state of the run.
// Without one, the step is the number of the optimizer's updates.
void save_checkpoint(const std::filesystem::path& folder, engine::Trainer& trainer, const RunState& state);
void save_checkpoint(const std::filesystem::path& folder, engine::Trainer& trainer);
// FileError for what is missing, broken, or of another shape than the trainer's graph has; the tensor is named.
RunState load_checkpoint(const std::filesystem::path& folder, engine::Trainer& trainer);
// The parameters alone: of a checkpoint, or of any safetensors files with these names.
void load_weights(const std::filesystem::path& folder, engine::Trainer& trainer);

// Of a model of a family: weights, optimizer state and run state on any number of ranks and stages; of an adapter, with the model beneath.
// FileError for what is missing or broken. saving.hpp writes them.
RunState load_checkpoint(const std::filesystem::path& folder, engine::Trainer& trainer, const models::ModelSource& model);

}  // namespace ppengine::runs
