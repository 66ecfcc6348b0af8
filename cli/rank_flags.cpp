// Where a command's ranks run.
#include "rank_flags.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>

#include <ppengine/base/error.hpp>
#include <ppengine/base/version.hpp>
#include <ppengine/comm/launch.hpp>
#include <ppengine/comm/processes.hpp>
#include <ppengine/comm/threads.hpp>

namespace ppengine::cli {
namespace {

// This program with the arguments that it was called with.
std::vector<std::string> own_command() {
  std::vector<std::string> words;
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  words.at(0) = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

// Ends a rank after an error. All ranks end by the same cause, so one of them tells it: rank 0, or rank 1 when rank 0
// is gone.
[[noreturn]] void end_rank(const comm::RankEnvironment& me, comm::Communicator* world, const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  std::optional<comm::Failure> failure = world ? world->failure() : std::nullopt;
  if (world && !failure) world->abort(error.what());
  const int speaker = failure && failure->lost && failure->rank == 0 ? 1 : 0;
  if (me.rank == speaker) fmt::print(stderr, "ppengine: {}\n", error.what());
  comm::leave(static_cast<int>(known ? known->exit_code() : ExitCode::failed));
}

}  // namespace

void RankFlags::add(CLI::App& command, const char* group) {
  command
      .add_option("--launch", launch,
                  "threads: all ranks in this process; processes: one each, started here unless mpiexec, torchrun or "
                  "srun has (default: "
                  "threads, under one of those processes)")
      ->check(CLI::IsMember({"threads", "processes"}))
      ->group(group);
  command.add_option("--device", device, "Device, as 'ppengine devices' names it (default: SYCL's)")->group(group);
  command.add_option("--timeout", timeout, "Seconds that a rank waits for another (default 30)")->check(CLI::Range(0.1, 1e6))->group(group);
}

std::optional<comm::RankEnvironment> RankFlags::place() const {
  if (launch == "threads") return std::nullopt;
  auto found = comm::detect_ranks();
  // A launcher's single process is not a reason to give up threads.
  if (found && found->size == 1 && launch.empty()) return std::nullopt;
  return found;
}

std::shared_ptr<ops::Device> RankFlags::open_device() const { return starts_processes() ? nullptr : ops::Device::open(device); }

bool RankFlags::run(int ranks, const std::shared_ptr<ops::Device>& on, const std::function<void(comm::Communicator&)>& body) const {
  if (const auto me = place()) {
    run_as_rank(*me, ranks, on, body);
    return me->rank == 0;
  }
  if (starts_processes()) {
    run_processes(ranks);
    return false;
  }
  comm::LocalOptions local;
  local.devices.assign(static_cast<std::size_t>(ranks), on);
  local.timeout = deadline();
  comm::run_threads(ranks, local, body);
  return true;
}

void RankFlags::run_processes(int ranks) const {
  comm::LaunchOptions options;
  options.command = own_command();
  options.ranks = ranks;
  options.patience = deadline() + std::chrono::seconds(5);
  const int code = comm::launch(options).exit_code;
  if (code != 0) throw CLI::RuntimeError(code);  // the ranks have said why
}

void RankFlags::run_as_rank(const comm::RankEnvironment& me, int ranks, const std::shared_ptr<ops::Device>& on,
                            const std::function<void(comm::Communicator&)>& body) const {
  std::unique_ptr<comm::Communicator> world;
  try {
    if (me.size != ranks)
      throw ConfigError(fmt::format("{} has started {} ranks, and {} are asked for (--pp x --dp)", me.source, me.size, ranks));
    comm::ProcessOptions options;
    options.device = on;
    options.timeout = deadline();
    options.version = fmt::format("{} ({})", version(), commit());
    world = comm::connect_processes(me, options);
    body(*world);
  } catch (const std::exception& error) {
    end_rank(me, world.get(), error);
  }
}

}  // namespace ppengine::cli
