// The state of a replica, kept in memory over a loss of ranks: every rank writes its part by itself, without communication, to files that
// take no disk (/dev/shm). Any number of stages can take it up again.
#pragma once

#include <filesystem>
#include <optional>

#include <ppengine/engine/trainer.hpp>
#include <ppengine/models/data/data.hpp>

namespace ppengine::runs {

// Where the run was.
struct KeptStep {
  std::int64_t step = 0;
  models::DataPosition position;  // of what comes next
  double best = 0;                // loss of an evaluation
  engine::StepResult last;
};

// The part of this rank (its place in the pipeline and tensor axes): trained parameters and the optimizer's state.
int part_of(const comm::Mesh& mesh);
int parts_of(const comm::MeshShape& shape);
void write_part(const std::filesystem::path& folder, engine::Trainer& trainer, const KeptStep& step);

// The step of a folder to which all parts have been written; nothing where one is missing.
std::optional<KeptStep> find_kept(const std::filesystem::path& folder, int parts);
// Overwrites what has been loaded before. FileError where a tensor is missing.
void load_kept(const std::filesystem::path& folder, engine::Trainer& trainer);

}  // namespace ppengine::runs
