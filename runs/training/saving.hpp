// A checkpoint on its way to the disk, while the run waits or trains on.
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
#include <vector>

#include <ppengine/engine/graph/lora.hpp>
#include <ppengine/models/source.hpp>
#include <ppengine/runs/checkpoint.hpp>

namespace ppengine::runs {

// Copies of what is saved, by name. The next checkpoint uses their memory again.
using KeptTensors = std::map<std::string, std::vector<float>>;

struct SaveOptions {
  std::filesystem::path folder;
  std::int64_t keep = 1;                         // above 1: of the checkpoints before, the last ones stay as FOLDER.step-N
  const models::ModelSource* model = nullptr;    // its config.json is saved too, and its tokenizer and other small files; null: any graph
  std::optional<engine::LoraOptions> lora = {};  // what is saved is an adapter (peft's folder): the model beneath stays where it is
  KeptTensors* kept = nullptr;                   // copied there now; a thread writes it while training goes on. null: written now
};

// All ranks make one, and call finish, or advance until it says so; until then, and on any error, the checkpoint before stays.
class Saving {
 public:
  Saving(SaveOptions options, engine::Trainer& trainer, const RunState& state);
  ~Saving();
  // After a step, on all ranks: true when the checkpoint has its name. Does not wait for the disk.
  bool advance();
  void finish();
  std::int64_t step() const { return step_; }

 private:
  struct Part;
  enum class Phase { writing, committing, done };
  void start(std::function<void()> work);
  void next_phase();  // when all ranks are through with this one
  void commit() const;

  SaveOptions options_;
  engine::Trainer& trainer_;
  std::int64_t step_;
  std::unique_ptr<Part> part_;
  std::thread thread_;
  std::exception_ptr error_;
  std::atomic<bool> idle_{true};
  Phase phase_ = Phase::writing;
};

// Saves at once. All ranks call it.
void save_checkpoint(const SaveOptions& options, engine::Trainer& trainer, const RunState& state);

}  // namespace ppengine::runs
