// The steps of a training run, whatever it trains: batches, notices, evaluations, checkpoints, and when to stop.
#pragma once

#include <limits>
#include <memory>
#include <optional>

#include <ppengine/models/files/save_folder.hpp>
#include <ppengine/runs/elastic/elastic.hpp>
#include <ppengine/runs/training.hpp>
#include <ppengine/runs/training/saving.hpp>
#include <ppengine/runs/training/watch.hpp>

namespace ppengine::runs {

// What is trained: a model of a family, or a program. All ranks make the same calls.
class TrainingTask {
 public:
  virtual ~TrainingTask() = default;
  virtual engine::Trainer& trainer() = 0;
  virtual engine::Batch next_batch() = 0;
  virtual models::DataPosition position() const = 0;  // behind the last batch
  virtual void before_step() {}
  virtual std::optional<double> evaluate() = 0;  // the loss; nothing where there is no data for it
  // A checkpoint of the run after `step`: nothing if it is on the disk, else it is on its way.
  virtual std::unique_ptr<Saving> save(std::int64_t step) = 0;
  virtual void save_best(const std::string& folder, std::int64_t step) = 0;
};

// Where the data of a resumed run goes on: behind what the checkpoint has seen of it, or at the beginning of other data, with a warning.
void go_on_in_data(models::DataSampler& sampler, RunState& state, const TrainingOptions& options);

// The folders that a run saves to, locked on the first rank while this lives.
class SaveFolders {
 public:
  SaveFolders(const TrainingOptions& options, bool first_rank);
  bool saves() const { return saves_; }
  const std::string& best() const { return best_; }  // empty: the best evaluation is not kept

 private:
  bool saves_;
  std::string best_;
  std::optional<models::SaveFolder> last_lock_, best_lock_;
};

class TrainingLoop {
 public:
  // step: how many are behind it. elastic: null unless lost ranks are replaced.
  TrainingLoop(const TrainingOptions& options, const SaveFolders& folders, TrainingTask& task, TrainingListener& listener,
               std::int64_t step, Elastic* elastic = nullptr);

  // Tells the listener of the run. Data: what the task knows of it.
  struct Data {
    std::string name;
    std::int64_t sequences = 0, sequence_length = 0, batch_size = 0;
  };
  void tell_start(const Data& data);
  // Two steps at a rate of zero, the first to warm up, and what the whole run would take by the second.
  TrainingResult dry_run();
  TrainingResult run();

 private:
  void all_steps();
  void finish_lost_step(const KeptStep& kept);
  void step();
  void record_step();
  void notice();
  void agree_to_stop();
  void tell_step();
  void finish_step();
  void evaluate();
  void save();
  void finish_saving();

  const TrainingOptions& options_;
  const SaveFolders& folders_;
  TrainingTask& task_;
  TrainingListener& listener_;
  engine::Trainer& trainer_;
  comm::Communicator& world_;
  Elastic* elastic_;
  const bool first_rank_;
  std::int64_t step_, saved_at_ = -1;
  double best_ = std::numeric_limits<double>::infinity();  // loss of an evaluation
  double worked_ = 0;                                      // seconds, since ranks were compared
  Watch watch_;
  std::vector<engine::Batch> batches_;
  std::unique_ptr<Saving> saving_;  // what is on its way
  std::vector<engine::TimedAction> timeline_;
  std::vector<engine::TimedReduction> reductions_;
  TrainingResult result_;
};

}  // namespace ppengine::runs
