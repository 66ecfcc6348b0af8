// A training run from start to end: model, data, steps, evaluations, checkpoints. One call per rank; a listener hears what happens.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ppengine/engine/graph/lora.hpp>
#include <ppengine/engine/trainer.hpp>
#include <ppengine/models/data/data.hpp>
#include <ppengine/models/source.hpp>

namespace ppengine::runs {

// What train, eval and bench read.
struct DataChoice {
  std::string data = "synthetic";
  std::int64_t sequence_length = 0;  // 0: the model's
  std::int64_t batch_size = 0;       // sequences per step over all ranks; 0: one per microbatch
  models::DataOrder order = models::DataOrder::sequential;
  std::uint64_t seed = 0;
  bool pack = false;              // several documents in a sequence
  bool variable_lengths = false;  // microbatches as long as their longest sequence
};

// What programs (FILE.pt2) take beside.
struct ProgramChoice {
  std::string loss;  // cross_entropy, mse, bce, output; empty: the program's own
  int class_dim = -1;
  bool dropout = true;  // as exported
  bool sync_batchnorm = false;
  bool patterns = true;  // off: no layer that the program spells out is recognised (tests)
};

// Ranks that can be lost: where their launcher keeps the state of the run.
struct ElasticChoice {
  std::string folder;  // empty: the run is not elastic
  int start = 0;       // how often the ranks have been started before
};

struct TrainingOptions {
  std::string model;
  ElasticChoice elastic;
  ProgramChoice program;
  DataChoice data;
  engine::TrainerOptions trainer;
  engine::LrSchedule lr;
  std::int64_t steps = 100;
  int accumulate = 1;                           // batches whose gradients make one update
  std::string freeze, only;                     // regular expressions: parameters by name that are not trained, or that alone are
  engine::LoraOptions lora;                     // rank 0: none; no targets: the family's
  std::string adapter;                          // LoRA adapter to go on with
  ops::WeightStorage weights;                   // of the frozen model beneath LoRA's terms
  bool dropout = false;                         // the configuration's dropout
  std::string save;                             // folder; empty: no checkpoints
  std::int64_t check_every = 0;                 // steps between comparisons of the data-parallel copies; 0: none
  std::int64_t save_every = 0;                  // steps; 0: at the end only
  std::int64_t keep = 1;                        // above 1: so many of the last checkpoints stay, those before the last as DIR.step-N
  bool save_async = false;                      // training goes on while a checkpoint is written
  std::string resume;                           // checkpoint to go on from
  std::string eval_data;                        // empty: no evaluation between steps
  std::int64_t eval_every = 0;                  // 0: at the end only
  std::int64_t eval_sequences = 0;              // 0: all of a file, 64 of made-up data
  std::map<std::string, std::string> settings;  // what checkpoints say the run was made with; the command line restores its flags from it
  bool dry_run = false;                         // loads no weights, measures a step with random ones, and saves nothing
  bool record = false;                          // keep the timelines of all steps (traces), not only of the last one
  bool observe = false;                         // after every step the listener may see what all ranks did
};

struct RunInfo {
  int ranks = 1, stages = 1, microbatches = 1;
  std::int64_t parameters = 0, trained = 0, sequence_length = 0, batch_size = 0, sequences = 0;
  std::string data, device;
  std::int64_t first_step = 1, steps = 0;
  std::vector<engine::StagePlace> stage_places;
};

// What a run would take: of a step that was measured with random weights.
struct DryRun {
  std::vector<std::size_t> memory_bytes;  // per rank
  std::int64_t steps = 0, tokens = 0;     // of the whole run
  double step_seconds = 0, seconds = 0;
};

struct TrainingResult {
  bool interrupted = false;
  bool regroup = false;  // elastic: all ranks have kept the state and are to be started again in another number
  engine::StepResult last;
  std::vector<std::size_t> peak_bytes;  // per rank
  std::vector<double> idle_share;       // per rank, of the last step
  schedules::Plan plan;
  // What each rank did, in the last step or (with `record`) in all of them one after the other.
  std::vector<std::vector<engine::TimedAction>> timelines;
  std::vector<std::vector<engine::TimedReduction>> reductions;  // in the same steps
};

// All methods but stop_requested and stopping are called on rank 0 only.
class TrainingListener {
 public:
  virtual ~TrainingListener() = default;
  virtual void started(const RunInfo&) {}
  virtual void stepped(const engine::StepResult&, std::size_t /*peak_bytes of rank 0*/) {}
  virtual void evaluated(std::int64_t /*step*/, double /*loss*/) {}
  virtual void saved(const std::string& /*folder*/, std::int64_t /*step*/) {}
  virtual void planned(const DryRun&) {}
  virtual void noticed(const std::string& /*text*/) {}  // a loss spike
  // With TrainingOptions::observe: whether to gather what the ranks did in this step; and that, with all but `record`.
  virtual bool wants_ranks() { return false; }
  virtual void ranks_gathered(const TrainingResult&) {}
  virtual bool stop_requested() { return false; }  // asked on every rank after every step: one is enough
  virtual void stopping() {}                       // on every rank: the step is over, a checkpoint is saved where one was asked for
};

TrainingResult run_training(const TrainingOptions& options, comm::Communicator& world, TrainingListener& listener);

// The sequences as a batch of "input_ids" and "targets", and "positions" where documents are packed.
engine::Batch read_batch(const models::TokenSource& source, std::span<const std::uint64_t> sequences);

// What --model and --adapter name. ConfigError for an adapter without a folder beneath.
models::ModelSource open_model_with_adapter(const std::string& model, const std::string& adapter);

}  // namespace ppengine::runs
