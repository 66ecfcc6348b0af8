// Checkpoints: a Hugging Face folder plus the optimizer's state and where the run was. Every rank writes its part; the folder takes its
// name only when it is whole, and until then the one before stays.
#pragma once

#include <atomic>
#include <exception>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include <ppengine/engine/trainer.hpp>
#include <ppengine/models/config.hpp>
#include <ppengine/engine/graph/lora.hpp>
#include <ppengine/models/data/data.hpp>
#include <ppengine/models/source.hpp>

namespace ppengine::runs {

struct RunState {
  std::int64_t step = 0;
  std::uint64_t seed = 0;
  models::DataPosition position;
  std::string data;                             // what --data was
  std::map<std::string, std::string> settings;  // what the run was made with, by the flag's name
};

// FileError, before a run has done any work, where its checkpoint could not be written to `folder` or would replace something that is no
// model folder.
void check_can_save(const std::filesystem::path& folder);

// A whole checkpoint in the folder: its step, and what tells it from one that was there before. Nothing where there is none: one that
// was not finished lies elsewhere and is not looked at.
struct SavedCheckpoint {
  std::int64_t step = 0;
  std::string mark;
};
std::optional<SavedCheckpoint> find_checkpoint(const std::filesystem::path& folder);

// What the run of a checkpoint was made with; empty where there is none, or where it does not say.
std::map<std::string, std::string> saved_settings(const std::filesystem::path& folder);

struct SaveOptions {
  std::filesystem::path folder;
  std::int64_t keep = 1;                     // above 1: of the checkpoints before, the last ones stay as FOLDER.step-N
  const engine::LoraOptions* lora = nullptr;  // what is saved is an adapter (peft's folder): the model beneath stays where it is
  bool in_background = false;                // only what is saved is copied now; a thread writes it while training goes on
};

// A checkpoint on its way to the disk. All ranks make one, and call finish; until then, and on any error, the one before stays.
class Saving {
 public:
  // model: its configuration is saved too, and tokenizer and other small files are copied from its folder.
  Saving(const SaveOptions& options, engine::Trainer& trainer, const models::ModelSource& model, const RunState& state);
  ~Saving();
  bool written() const { return written_; }  // this rank's part: finish() will not wait for it
  void finish();
  std::int64_t step() const { return step_; }

 private:
  struct Part;
  void write(Part& part);
  SaveOptions options_;
  engine::Trainer& trainer_;
  std::int64_t step_;
  std::unique_ptr<Part> part_;
  std::thread thread_;
  std::exception_ptr error_;
  std::atomic<bool> written_{false};
  std::function<void()> commit_;  // on the first rank, when all parts are written
};

// Saves at once. All ranks call it.
void save_checkpoint(const SaveOptions& options, engine::Trainer& trainer, const models::ModelSource& model, const RunState& state);

// Weights, optimizer state and run state of a checkpoint, on any number of ranks and stages; of an adapter, with the model beneath. FileError
// for what is missing or broken.
RunState load_checkpoint(const std::filesystem::path& folder, engine::Trainer& trainer, const models::ModelSource& model);

}  // namespace ppengine::runs
