// What all runs of programs begin with: options, the checked graph, the batch that fits it.
#pragma once

#include <ppengine/engine/parallel.hpp>
#include <ppengine/models/data/tensor_data.hpp>
#include <ppengine/models/import/program.hpp>
#include <ppengine/runs/training.hpp>

namespace ppengine::runs {

// ConfigError where a flag of other models was given, which would do nothing here.
void refuse_flag(bool given, const char* flag, const char* why);
// Those that training and evaluation share.
void refuse_flags_of_other_models(const DataChoice& data, const std::string& adapter, const ops::WeightStorage& weights);

models::ProgramOptions build_options(const ProgramChoice& choice, const models::TensorData* data, bool dropout, bool outputs);
// ConfigError for what is not supported, or where a loss is needed and there is none.
models::ProgramGraph build_program(const models::Program& program, const models::ProgramOptions& options, bool needs_loss);
// With a split in names that the graph knows. ConfigError for what programs cannot be combined with.
engine::ParallelOptions for_programs(engine::ParallelOptions parallel, const models::ProgramGraph& program);
// Names of modules as they are given, in those of the graph: one without nodes of its own begins where the next node does.
std::vector<std::string> names_of_graph(const std::vector<std::string>& split, const models::ProgramGraph& program);
// Samples of a step over all data-parallel ranks. Where the export has fixed those of a microbatch, the microbatches follow from the batch.
std::int64_t fit_batch(const DataChoice& data, engine::ParallelOptions& parallel, std::int64_t fixed_batch);

}  // namespace ppengine::runs
