// --elastic: a training run that goes on when ranks are lost.
#pragma once

#include <CLI/CLI.hpp>

#include <chrono>
#include <functional>
#include <memory>

#include <ppengine/comm/launch.hpp>
#include <ppengine/comm/mesh.hpp>
#include <ppengine/runs/training.hpp>

#include "flags/run_flags.hpp"

namespace ppengine::cli {

struct ElasticFlags {
  int minimum = 0;  // replicas that must be left; 0: not elastic
  double away = 0;  // seconds until a lost replica returns

  void add(CLI::App& command);
  // In every process, before the ranks' number is used: what a rank is told by the launcher. Sets the number of replicas that there are.
  runs::ElasticChoice in_rank(ParallelFlags& parallel, runs::TrainingOptions& options) const;
  // In the process that starts the ranks. from_checkpoint makes the next start go on from what was saved; false where there is nothing.
  void before_launch(comm::LaunchOptions& launch, const comm::MeshShape& wanted,
                     const std::function<bool(comm::LaunchOptions&)>& from_checkpoint) const;
};

}  // namespace ppengine::cli
