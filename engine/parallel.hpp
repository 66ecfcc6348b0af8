// How a model is laid over ranks: the options that training, evaluation and generation share, and the plan and cuts they give.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ppengine/comm/mesh.hpp>
#include <ppengine/engine/graph/graph.hpp>
#include <ppengine/ops/device/device.hpp>
#include <ppengine/schedules/registry.hpp>

namespace ppengine::engine {

struct StageCut;

// What stages are balanced by. Measured in a short warm-up of training, they fit the device best, and no two runs need have the same.
// automatic: measured where a run's results have the same bits for any split; gradients that more than two ranks sum, or that ranks keep
// parts of, are added up in an order that depends on it: estimated there.
enum class Balance { automatic, estimated, measured };

struct ParallelOptions {
  int pipeline = 1, data = 1, tensor = 1;
  bool sequence_parallel = false;  // tensor-parallel ranks divide the tokens where they do not divide the width: norms, residuals
  int stages = 0;                  // 0: the schedule's default
  int microbatches = 1;
  std::string schedule = "1f1b";
  std::optional<schedules::Plan> plan;  // a plan of the user's own, in place of the schedule
  std::vector<std::string> split;       // modules at which stages begin; empty: balanced by cost
  Balance balance = Balance::automatic;
  bool shard = false;          // each data-parallel rank keeps a part of parameters, gradients and optimizer state
  int active_stages = 3;       // sharded: stages of a rank that are gathered at the same time, at most
  bool always_gather = false;  // sharded: keep only parts even where whole parameters or gradients take less memory
  ops::Type type = ops::Type::f32;
  bool type_given = true;               // false: it is the device's default, which gives way where something is for f32 alone
  std::shared_ptr<ops::Device> device;  // null: SYCL's default
  // Of ranks that are threads: rank r is on the (r mod their number)-th. Empty: all are on `device`.
  std::vector<std::shared_ptr<ops::Device>> devices;
  const schedules::Registry* registry = nullptr;  // null: the built-in schedules

  comm::MeshShape mesh() const { return {pipeline, data, tensor}; }
  // Where this rank computes; opens SYCL's default where no device is named.
  std::shared_ptr<ops::Device> device_of(const comm::Communicator& rank) const;
  void prefer_f32() {
    if (!type_given) type = ops::Type::f32;
  }
  bool sharded() const { return shard && data > 1; }  // over one rank there is nothing to divide
};

// A stage in the pipeline: its rank, and where it begins.
struct StagePlace {
  int rank;
  std::string first_module;
};

// The plan that the options ask for, lowered. For inference: forward only, on the placement that the schedule or plan gives.
schedules::Plan make_plan(const ParallelOptions& options, bool inference, std::vector<int> stage_rank = {});
// Stages as the options cut them, for microbatches of so many sequences. world: of training, where all ranks call it; null: nothing is
// measured.
std::vector<StageCut> make_cuts(const Graph& graph, const ParallelOptions& options, int stages, std::int64_t batch, std::int64_t length,
                                comm::Communicator* world = nullptr);

}  // namespace ppengine::engine
