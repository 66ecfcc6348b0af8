// --elastic: starts ranks again from the state that the survivors have kept.
#include "elastic.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/comm/launch/shared_memory.hpp>
#include <ppengine/runs/elastic/kept_state.hpp>
#include <ppengine/runs/elastic/record.hpp>

#include "flags/within.hpp"

namespace ppengine::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* folder_variable = "PPENGINE_ELASTIC_FOLDER";
constexpr const char* replicas_variable = "PPENGINE_ELASTIC_REPLICAS";

// What the launcher knows of the run over all starts of its ranks.
class Supervisor {
 public:
  Supervisor(const ElasticFlags& flags, const comm::MeshShape& wanted, int restarts,
             std::function<bool(comm::LaunchOptions&)> from_checkpoint)
      : flags_(flags), wanted_(wanted), now_(wanted), restarts_(restarts), from_checkpoint_(std::move(from_checkpoint)) {
    if (folder_.path().empty()) throw ConfigError("--elastic keeps the state of lost replicas in /dev/shm, which cannot be written to");
    record_ = std::make_unique<runs::ElasticRecord>(record_file(0));
  }

  const fs::path& folder() const { return folder_.path(); }

  // A replica that was away returns at the next step.
  void watch() {
    if (now_.data < wanted_.data && Clock::now() > back_at_) (*record_)->regroup = 1;
  }

  std::optional<std::string> start_again(comm::LaunchOptions& launch, comm::LaunchResult& so_far) {
    if ((*record_)->over) {  // all that was left to do was to end
      so_far.exit_code = 0;
      return std::nullopt;
    }
    const int whole = whole_replicas(so_far);
    const bool returns = (*record_)->regroup != 0;
    const auto kept = runs::find_kept(kept_folder(start_), runs::parts_of(now_));
    std::string from;
    if (kept) {
      from = fmt::format("from memory after step {}", kept->step);
    } else if ((*record_)->step == begun_at_) {
      from = begun_at_ > 0 ? fmt::format("from memory after step {}", begun_at_) : "from where it was started";
    } else {
      if (restarts_-- <= 0) {
        log::error("no replica is left whose state could be kept");
        return std::nullopt;
      }
      if (!from_checkpoint_(launch)) return std::nullopt;
      from = "from the checkpoint";
      begun_at_ = -1;
      std::error_code ignored;
      for (int start = 0; start <= start_; ++start) fs::remove_all(kept_folder(start), ignored);  // older than the checkpoint
    }
    if (whole < flags_.minimum && !returns) {
      log::error(fmt::format("{} whole replica{} left, --elastic wants {}", whole, whole == 1 ? " is" : "s are", flags_.minimum));
      return std::nullopt;
    }
    const std::int64_t step = kept ? kept->step : begun_at_;
    fruitless_ = step > begun_at_ || returns ? 0 : fruitless_ + 1;
    if (fruitless_ > most_fruitless) {
      log::error(fmt::format("the last {} starts came to no step", most_fruitless));
      return std::nullopt;
    }
    begun_at_ = step;
    choose_replicas(whole, returns);
    launch.ranks = now_.size();
    launch.environment[replicas_variable] = std::to_string(now_.data);
    next_record();
    return fmt::format("{}: going on {} with {} of {} replicas", returns ? "a replica returns" : "a rank was lost", from, now_.data,
                       wanted_.data);
  }

 private:
  static constexpr int most_fruitless = 20;

  fs::path kept_folder(int start) const { return folder() / fmt::format("kept-{}", start); }
  fs::path record_file(int start) const { return folder() / fmt::format("record-{}", start); }

  // A lost replica is replaced at once, or after it was away. One that keeps failing stays away for a while.
  void choose_replicas(int whole, bool returns) {
    const bool fails = fruitless_ >= 3;
    if (returns || (flags_.away == 0 && !fails)) {
      now_.data = wanted_.data;
    } else if (const int fewer = std::max(flags_.minimum, fails ? now_.data - 1 : whole); fewer < now_.data) {
      now_.data = fewer;
      back_at_ =
          Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(1000 * (fails ? std::max(flags_.away, 30.0) : flags_.away)));
    }
  }

  int whole_replicas(const comm::LaunchResult& so_far) const {
    // A communication library that is starting may crash in ranks that others are lost to.
    if (!(*record_)->trains) return now_.data - 1;
    std::vector<bool> lost(static_cast<std::size_t>(now_.data));
    for (int rank = 0; rank < now_.size(); ++rank)
      if (const comm::RankEnd& end = so_far.ranks[static_cast<std::size_t>(rank)];
          end.signal != 0 && !end.by_launcher && !(*record_)->survivors[rank])
        lost[static_cast<std::size_t>(now_.place(rank).data)] = true;
    return static_cast<int>(std::ranges::count(lost, false));
  }

  void next_record() {
    auto next = std::make_unique<runs::ElasticRecord>(record_file(++start_));
    (*next)->told = (*record_)->told.load();
    (*next)->finished = (*record_)->finished.load();
    (*next)->step = begun_at_;
    record_ = std::move(next);
    std::error_code ignored;
    fs::remove(record_file(start_ - 1), ignored);
  }

  const ElasticFlags flags_;
  const comm::MeshShape wanted_;
  comm::MeshShape now_;
  int restarts_;
  std::function<bool(comm::LaunchOptions&)> from_checkpoint_;
  const comm::SharedMemoryFolder folder_;
  std::unique_ptr<runs::ElasticRecord> record_;
  int start_ = 0, fruitless_ = 0;
  std::int64_t begun_at_ = 0;
  Clock::time_point back_at_;
};

}  // namespace

void ElasticFlags::add(CLI::App& command) {
  const char* group = "Parallel";
  auto* least =
      command
          .add_option("--elastic", minimum,
                      "With --dp and --launch processes: when a rank is lost, go on from the other replicas' memory as long as so "
                      "many of them are left (docs/trust.md)")
          ->type_name("MIN")
          ->check(CLI::Range(1, 4096))
          ->group(group);
  command
      .add_option("--elastic-return", away,
                  "Seconds that the other replicas go on alone until a lost one returns (default 0: it is replaced at once)")
      ->check(within(0.0, 1e6))
      ->needs(least)
      ->group(group);
}

runs::ElasticChoice ElasticFlags::in_rank(ParallelFlags& parallel, runs::TrainingOptions& options) const {
  if (minimum == 0) return {};
  if (parallel.launch != "processes" && parallel.hosts.empty())
    throw ConfigError("--elastic needs --launch processes: threads are not lost one by one");
  if (!parallel.hosts.empty()) throw ConfigError("--elastic keeps states in the memory of one machine: it does not go with --hosts");
  if (parallel.shard) throw ConfigError("--elastic needs whole replicas: it does not go with --shard");
  if (parallel.dp < 2 || minimum >= parallel.dp)
    throw ConfigError(
        fmt::format("--elastic {}: of --dp {} replicas none may be lost; use --dp {} or more", minimum, parallel.dp, minimum + 1));
  if (options.model.ends_with(".pt2")) throw ConfigError("--elastic does not go with programs (.pt2)");
  const char* const folder = std::getenv(folder_variable);
  if (!folder) {
    if (!parallel.starts_processes()) throw ConfigError("--elastic: under mpiexec, torchrun or srun, starting ranks again is theirs");
    return {};
  }
  // The batch is that of all replicas, however many there are.
  if (options.data.batch_size == 0) options.data.batch_size = std::int64_t{parallel.options(0).microbatches} * parallel.dp;
  if (const char* const replicas = std::getenv(replicas_variable)) parallel.dp = std::atoi(replicas);
  const char* const start = std::getenv("PPENGINE_RESTART");
  return {folder, start ? std::atoi(start) : 0};
}

void ElasticFlags::before_launch(comm::LaunchOptions& launch, const comm::MeshShape& wanted,
                                 const std::function<bool(comm::LaunchOptions&)>& from_checkpoint) const {
  const auto supervisor = std::make_shared<Supervisor>(*this, wanted, launch.restarts, from_checkpoint);
  launch.restarts = INT_MAX;
  launch.patience_after_news = launch.patience;  // others may still write
  launch.environment[folder_variable] = supervisor->folder().string();
  launch.while_running = [supervisor] { supervisor->watch(); };
  launch.before_restart = [supervisor](comm::LaunchOptions& again, comm::LaunchResult& so_far) {
    return supervisor->start_again(again, so_far);
  };
}

}  // namespace ppengine::cli
