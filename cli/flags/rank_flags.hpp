// Where a command's ranks run: threads of this process, processes that it starts, or this process as one rank of many
// (mpiexec, torchrun, srun).
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <optional>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/comm/environment.hpp>
#include <ppengine/comm/launch.hpp>
#include <ppengine/comm/local.hpp>
#include <ppengine/ops/device/device.hpp>

namespace ppengine::cli {

struct RankFlags {
  std::string launch;  // threads or processes; empty: processes under mpiexec, torchrun or srun, otherwise threads
  std::string device;
  double timeout =
      0;  // 0: 30 s for processes; 10 minutes for threads, which cannot be lost, but may wait long for a kernel that another compiles
  std::string hosts, remote_shell = "ssh";
  int restarts = 0;
  std::string progress = "thread";
  bool no_pin = false;
  // What to say behind the message that a rank was lost: the checkpoint to go on from.
  std::function<std::string()> when_lost;
  // In the process that starts the ranks: how it does that may be changed before the first start.
  std::function<void(comm::LaunchOptions&)> before_launch;
  comm::SimulatedLink link;  // for measurements

  void add(CLI::App& flags_of, const char* group);
  // This process only starts the ranks.
  bool starts_processes() const { return (launch == "processes" || !hosts.empty()) && !place(); }
  // Devices for so many ranks, which take turns where there are fewer; of ranks as processes, this one's alone. Empty in a process that
  // only starts the ranks: it computes nothing itself.
  std::vector<std::shared_ptr<ops::Device>> open_devices(int ranks) const;
  // Runs a function once per rank. True where results are to be printed: not in ranks other than 0, nor in a process
  // that has only started the ranks. A rank as a process that fails, or loses another, ends here with its exit code.
  [[nodiscard]] bool run(int ranks, const std::vector<std::shared_ptr<ops::Device>>& on,
                         const std::function<void(comm::Communicator&)>& body) const;

 private:
  const CLI::App* command_ = nullptr;
  // Which rank this process is, where it is one.
  std::optional<comm::RankEnvironment> place() const;
  void check_launching() const;
  void run_processes(int ranks) const;
  void run_as_rank(const comm::RankEnvironment& me, int ranks, const std::shared_ptr<ops::Device>& on,
                   const std::function<void(comm::Communicator&)>& body) const;
  std::chrono::milliseconds deadline(double otherwise) const {
    return std::chrono::milliseconds(static_cast<std::int64_t>((timeout > 0 ? timeout : otherwise) * 1000));
  }
};

}  // namespace ppengine::cli
