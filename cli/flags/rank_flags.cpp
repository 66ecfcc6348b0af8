// Flags that say where a command's ranks run.
#include "flags/rank_flags.hpp"

#include <fmt/core.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include <ppengine/base/error.hpp>
#include <ppengine/base/printable.hpp>
#include <ppengine/base/version.hpp>
#include <ppengine/comm/launch.hpp>
#include <ppengine/comm/limited.hpp>
#include <ppengine/comm/processes.hpp>
#include <ppengine/comm/threads.hpp>
#include <ppengine/schedules/executor.hpp>

#include "flags/agreement.hpp"
#include "flags/within.hpp"
#include "output/results.hpp"

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

// Ranks of one machine share its cores and memory: far more than cores only run out of memory.
void check_fits_here(int ranks) {
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency())), most = std::max(64, 4 * cores);
  if (ranks > most)
    throw ConfigError(
        fmt::format("{} ranks are too many for this machine of {} cores (at most {}): use a smaller --pp, --dp or --tp, or several "
                    "machines under mpiexec, torchrun or srun",
                    ranks, cores, most));
}

// An error on one line: where in the plan, where to go on.
void tell(const std::exception& error, bool lost, const std::function<std::string()>& when_lost) {
  std::string text = error.what();
  const auto* peer = dynamic_cast<const CommError*>(&error);
  if (lost && when_lost && peer && peer->position().empty()) text += " (between two steps)";
  const std::string more = lost && when_lost ? when_lost() : std::string();
  print_note("ppengine: {}{}{}\n", printable(text), more.empty() ? "" : "; ", more);
}

// Ends a rank after an error. All ranks end by the same cause, so one of them tells it: rank 0, or rank 1 when rank 0
// is gone.
[[noreturn]] void end_rank(const comm::RankEnvironment& me, comm::Communicator* world, const std::exception& error,
                           const std::function<std::string()>& when_lost) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const auto* peer = dynamic_cast<const CommError*>(&error);
  std::optional<comm::Failure> failure = world ? world->failure() : std::nullopt;
  if (failure && failure->rank == me.rank) failure.reset();  // this very error, told to the others when it came up
  if (world) world->abort(error.what());                     // also when another rank has failed: until nobody reads this one's memory
  const bool first_gone = failure ? failure->lost && failure->rank == 0 : !world && peer && peer->peer() == 0;
  // One that fails before it has found the others can tell nobody else.
  if (me.rank == (first_gone ? 1 : 0) || (!world && !peer)) tell(error, peer || failure, when_lost);
  comm::leave(static_cast<int>(known ? known->exit_code() : ExitCode::failed));
}

}  // namespace

void RankFlags::add(CLI::App& command, const char* group) {
  command_ = &command;
  command
      .add_option("--launch", launch,
                  "threads: all ranks in this process; processes: one each, started here unless mpiexec, torchrun or "
                  "srun has (default: "
                  "threads, under one of those processes)")
      ->check(CLI::IsMember({"threads", "processes"}))
      ->group(group);
  command
      .add_option("--device", device,
                  "Device, as 'ppengine devices' names it, or all GPUs of a kind (gpu, cuda): ranks take one each (default: SYCL's)")
      ->group(group);
  command.add_option("--timeout", timeout, "Seconds that a rank waits for another (default: 30; 600 for threads)")
      ->check(within(0.1, 1e6))
      ->group(group);
  command.add_option("--hosts", hosts, "Start ranks on these machines, the first being this one: 'a:4,b:4', or 'a,b' for even shares")
      ->type_name("HOST[:RANKS],...")
      ->group(group);
  command
      .add_option("--remote-shell", remote_shell, "How other hosts are reached: a program that takes a host and a command (default ssh)")
      ->type_name("COMMAND")
      ->group(group);
  command.add_option("--restarts", restarts, "With --launch processes: how often to start again after a rank was lost (default 0)")
      ->check(CLI::Range(0, 1000000))
      ->group(group);
  command.add_option("--progress", progress, "Who moves messages while a process computes: a thread of ours, or only whoever waits")
      ->check(CLI::IsMember({"thread", "polling"}))
      ->group(group);
  command.add_flag("--no-pin", no_pin, "Let processes run on all cores, not each on a set of its own")->group(group);
}

void RankFlags::check_launching() const {
  const auto me = comm::detect_ranks();
  if (me && me->source == "ppengine") return;  // the launcher has seen to it
  if (restarts > 0 && !starts_processes())
    throw ConfigError("--restarts needs --launch processes: under mpiexec, torchrun or srun, starting again is theirs");
  if (!hosts.empty() && launch == "threads") throw ConfigError("--hosts needs --launch processes: threads run on one machine");
  if (!hosts.empty() && me) throw ConfigError(fmt::format("--hosts: {} has started the ranks already", me->source));
}

std::optional<comm::RankEnvironment> RankFlags::place() const {
  if (launch == "threads") return std::nullopt;
  auto found = comm::detect_ranks();
  // A launcher's single process is not a reason to give up threads.
  if (found && found->size == 1 && launch.empty()) return std::nullopt;
  return found;
}

std::vector<std::shared_ptr<ops::Device>> RankFlags::open_devices(int ranks) const {
  check_launching();
  if (starts_processes()) return {};
  const auto me = place();
  if (me && !no_pin) comm::pin_rank(me->local_rank, me->local_size);
  const std::vector<std::string> found = ops::find_devices(device);
  if (me) return {ops::Device::open(found[static_cast<std::size_t>(me->local_rank) % found.size()])};
  std::vector<std::shared_ptr<ops::Device>> opened;
  for (const std::string& selector : found)
    if (opened.size() < static_cast<std::size_t>(ranks)) opened.push_back(ops::Device::open(selector));
  return opened;
}

bool RankFlags::run(int ranks, const std::vector<std::shared_ptr<ops::Device>>& on,
                    const std::function<void(comm::Communicator&)>& body) const {
  if (const auto me = place()) {
    run_as_rank(*me, ranks, on.front(), body);
    return me->rank == 0;
  }
  if (hosts.empty()) check_fits_here(ranks);
  if (starts_processes()) {
    run_processes(ranks);
    return false;
  }
  comm::LocalOptions local;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r) local.devices.push_back(on[r % on.size()]);
  local.timeout = deadline(600);
  local.link = link;
  comm::run_threads(ranks, local, body);
  return true;
}

void RankFlags::run_processes(int ranks) const {
  comm::LaunchOptions options;
  options.command = own_command();
  options.ranks = ranks;
  if (!hosts.empty()) options.hosts = comm::parse_hosts(hosts, ranks);
  options.remote_shell = remote_shell;
  options.restarts = restarts;
  options.pin = !no_pin;
  options.patience = deadline(30) + std::chrono::seconds(5);
  if (before_launch) before_launch(options);
  const int code = comm::launch(options).exit_code;
  if (code != 0) throw CLI::RuntimeError(code);  // the ranks have said why
}

void RankFlags::run_as_rank(const comm::RankEnvironment& me, int ranks, const std::shared_ptr<ops::Device>& on,
                            const std::function<void(comm::Communicator&)>& body) const {
  std::unique_ptr<comm::Communicator> world;
  try {
    // Rank 0 need not wait for the others to say so; another one tells it to rank 0, which speaks.
    const bool as_many = me.size == ranks;
    const ConfigError other_number(
        fmt::format("{} has started {} ranks, and {} are asked for (--pp x --dp x --tp)", me.source, me.size, ranks));
    if (!as_many && me.rank == 0) throw other_number;
    comm::ProcessOptions options;
    options.device = on;
    options.timeout = deadline(30);
    options.progress = progress;
    options.version = fmt::format("{} ({})", version(), commit());
    comm::set_last_words([this](const CommError& error) { tell(schedules::with_position(error), true, when_lost); });
    world = comm::connect_processes(me, options);
    if (command_) check_same_settings(*command_, *world);
    if (!as_many) throw other_number;
    const auto slow = link.on() ? comm::limit_link(*world, link) : nullptr;
    body(slow ? *slow : *world);
  } catch (const std::exception& error) {
    end_rank(me, world.get(), error, when_lost);
  }
}

}  // namespace ppengine::cli
