// Training and evaluation of programs exported by torch.export: the counterparts of run_training and run_evaluation.
#pragma once

#include <string>
#include <vector>

#include <ppengine/models/import/program.hpp>
#include <ppengine/runs/evaluation.hpp>
#include <ppengine/runs/training.hpp>

namespace ppengine::models {
class TensorData;
}

namespace ppengine::runs {

// ConfigError for a choice that means nothing to a model that is no program.
void refuse_flags_of_programs(const ProgramChoice& choice);

TrainingResult run_program_training(const TrainingOptions& options, comm::Communicator& world, TrainingListener& listener);
EvaluationResult run_program_evaluation(const EvaluationOptions& options, comm::Communicator& world);

// The batches of `bench train`: of the data, or random ones.
class ProgramBatches {
 public:
  // parallel: with as many microbatches as the program wants.
  ProgramBatches(const std::string& file, const ProgramChoice& choice, const DataChoice& data, engine::ParallelOptions& parallel);
  const std::shared_ptr<const engine::Graph>& graph() const { return graph_; }
  std::int64_t batch_size() const { return batch_size_; }
  engine::Batch read(std::uint64_t step) const;

 private:
  std::shared_ptr<const engine::Graph> graph_;
  std::shared_ptr<const models::TensorData> data_;  // null: random numbers
  std::int64_t batch_size_ = 0;
  std::uint64_t seed_ = 0;
};

// What `inspect` shows of a program.
struct ProgramInspection {
  models::ProgramGraph program;
  struct Entry {
    std::string name, type;
    std::vector<std::int64_t> shape;
    std::int64_t elements = 0;
    bool buffer = false;
    std::vector<int> stages;
  };
  std::vector<Entry> state;  // parameters and buffers, as the saved file has them
  struct Stage {
    std::string first_module, last_module;
    std::int64_t parameters = 0;
  };
  std::vector<Stage> stages;
  std::vector<std::string> modules;
  std::vector<std::pair<std::string, std::string>> ops;  // op of the program and how it runs
};
ProgramInspection inspect_program(const std::string& file, const ProgramChoice& choice, int stages, const std::vector<std::string>& split);

// A rank's weights from the program's file or from a saved folder.
void load_program_weights(engine::ModelRank& model, ops::Stream& stream, const models::Program& program);

}  // namespace ppengine::runs
