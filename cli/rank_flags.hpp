// Where a command's ranks run: threads of this process, processes that it starts, or this process as one rank of many
// (mpiexec, torchrun, srun).
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <optional>

#include <ppengine/comm/communicator.hpp>
#include <ppengine/comm/environment.hpp>
#include <ppengine/ops/device.hpp>

namespace ppengine::cli {

struct RankFlags {
  std::string launch;  // threads or processes; empty: processes under mpiexec, torchrun or srun, otherwise threads
  std::string device;
  double timeout = 30;

  void add(CLI::App& command, const char* group);
  // Null in a process that only starts the ranks: it computes nothing itself.
  std::shared_ptr<ops::Device> open_device() const;
  // Runs a function once per rank. True where results are to be printed: not in ranks other than 0, nor in a process
  // that has only started the ranks. A rank as a process that fails, or loses another, ends here with its exit code.
  [[nodiscard]] bool run(int ranks, const std::shared_ptr<ops::Device>& on, const std::function<void(comm::Communicator&)>& body) const;

 private:
  // Which rank this process is, where it is one.
  std::optional<comm::RankEnvironment> place() const;
  bool starts_processes() const { return launch == "processes" && !place(); }
  void run_processes(int ranks) const;
  void run_as_rank(const comm::RankEnvironment& me, int ranks, const std::shared_ptr<ops::Device>& on,
                   const std::function<void(comm::Communicator&)>& body) const;
  std::chrono::milliseconds deadline() const { return std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000)); }
};

}  // namespace ppengine::cli
