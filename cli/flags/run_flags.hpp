// Flags that train, eval, generate and bench share: parallel, data.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <optional>

#include <ppengine/ops/weights.hpp>
#include <ppengine/runs/training.hpp>

#include "flags/rank_flags.hpp"

namespace ppengine::cli {

// What a command does with ranks: it takes the parallel flags that mean something to that, and refuses the others.
//   training    all of them
//   evaluation  all but how stages are balanced, which is measured in training only
//   inference   --pp, --tp, --stages, --split, --dtype: a generator has no microbatches, no copies, and contiguous stages
enum class Use { training, evaluation, inference };

struct ParallelFlags : RankFlags {
  int pp = 1, dp = 1, tp = 1;
  bool sequence_parallel = false;
  int stages = 0;
  int microbatches = 0;  // 0: chosen
  std::string schedule;  // empty: 1f1b
  std::string plan;
  std::vector<std::string> split;
  std::string balance = "auto";
  bool shard = false;
  int active_stages = 3;
  std::string dtype;  // empty: the device's

  void add(CLI::App& command, Use use);
  int ranks() const;  // refuses more than anybody can start
  // Checked and completed; opens the device. batch_size counts where microbatches are chosen. A plan file without --pp sets `pp`.
  engine::ParallelOptions options(std::int64_t batch_size = 0);
  // Runs a function once per rank; true where results are to be printed (rank_flags.hpp).
  [[nodiscard]] bool run(const engine::ParallelOptions& options, const std::function<void(comm::Communicator&)>& rank) const {
    return RankFlags::run(ranks(), options.devices, rank);
  }

 private:
  const CLI::Option* pp_ = nullptr;
  bool trains_ = true;  // or evaluates
  void add_plan_flags(CLI::App& command, const char* group);
  void add_sharding_flags(CLI::App& command, const char* group);
};

// What programs (FILE.pt2) take beside.
struct ProgramFlags {
  runs::ProgramChoice choice;

  void add(CLI::App& command, bool trains);
};

// How inference stores the weights of linears.
struct WeightFlags {
  std::string format;  // empty: not said
  std::int64_t group = 0;

  void add(CLI::App& command, const char* unsaid = "f32");
  ops::WeightStorage get() const { return chosen().value_or(ops::WeightStorage{}); }
  std::optional<ops::WeightStorage> chosen() const {
    return format.empty() ? std::nullopt : std::optional(ops::WeightStorage{ops::parse_weight_format(format), group});
  }
  // Where nobody says: as the folder has them.
  static constexpr const char* as_stored = "bf16 where the folder has them so: the same values; else f32";
};

// How inference stores keys and values.
struct CacheFlags {
  std::string type = "f32";
  std::int64_t mebibytes = 0;

  void add(CLI::App& command, const std::string& group);
  bool in_bytes() const { return type == "int8"; }
  std::int64_t memory() const { return mebibytes << 20; }
};

// How data-parallel ranks put their gradients together.
struct GradientFlags {
  std::string hook = "allreduce";
  int powersgd_rank = 4, powersgd_warmup = 10;
  std::vector<double> buckets;  // MiB
  bool in_backward = false;

  void add(CLI::App& command);
  void apply(engine::TrainerOptions& options) const;
};

struct DataFlags {
  runs::DataChoice choice;
  std::string order = "sequential", lengths = "fixed";

  void add(CLI::App& command, bool required);
  runs::DataChoice get() const;
};

}  // namespace ppengine::cli
