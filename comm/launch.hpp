// Starts ranks as processes, watches over them, and ends with one exit code.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ppengine::comm {

struct LaunchHost {
  std::string name;  // a name or an address; reached by the remote shell unless it is this machine
  int ranks;
};

struct LaunchOptions;
struct LaunchResult;

struct LaunchOptions {
  std::vector<std::string> command;  // the program and its arguments, the same for every rank
  int ranks = 1;
  std::vector<LaunchHost> hosts;     // empty: all on this machine; otherwise the first one is this machine, where rank 0 runs
  std::string remote_shell = "ssh";  // a program and its arguments; the host and a command for its shell are added
  bool pin = true;                   // a set of cores for each rank of this machine
  bool prefix = true;                // "[rank 1] " before the lines of every rank but 0
  int restarts = 0;                  // how often to start again after a rank was lost; PPENGINE_RESTART counts
  // How long ranks may take to end by themselves after one has failed.
  std::chrono::milliseconds patience{35000};
  // The same after one has told that it has lost a peer: the others know it too, and have nothing left to wait for.
  std::chrono::milliseconds patience_after_news{5000};
  std::map<std::string, std::string> environment;  // for every rank
  // Called before each further start: may change what the ranks are given, the checkpoint to resume from above all, and how many there are.
  // A text to log, or nothing: the run ends with the result as it leaves it.
  std::function<std::optional<std::string>(LaunchOptions&, LaunchResult&)> before_restart;
  std::function<void()> while_running;  // called several times a second
};

// How a rank ended: an exit code, or the signal that killed it.
struct RankEnd {
  int code = -1;
  int signal = 0;
  bool by_launcher = false;  // killed because of another rank
};

struct LaunchResult {
  // 0 when all ranks ended with 0; the code of the rank that failed by itself (1, 2, 3); 4 when a rank was lost; 130 interrupted.
  int exit_code = 0;
  std::vector<RankEnd> ranks;
  int restarts = 0;
};

// SIGINT, SIGTERM and SIGHUP (where it is not ignored) are passed on to the ranks. No rank outlives this process.
LaunchResult launch(const LaunchOptions& options);

// The cores of each rank: those that this process may use, in even, neighbouring sets; shared when there are more ranks than cores.
std::vector<std::vector<int>> core_sets(const std::vector<int>& cores, int ranks);
std::vector<int> usable_cores();
// Neighbours first: by package, die and core as the kernel's folder tells (threads of one core stand together).
std::vector<int> by_topology(std::vector<int> cores, const std::string& folder = "/sys/devices/system/cpu");
// Gives this process its set among the ranks of the machine, where no launcher has: when it may use every core. Before anything
// starts threads.
void pin_rank(int local_rank, int local_size);
// "node1:4,node2:4" or "node1,node2" (ranks spread evenly); ConfigError when it does not add up.
std::vector<LaunchHost> parse_hosts(const std::string& text, int ranks);
// One exit code for all ranks.
int combined_exit_code(const std::vector<RankEnd>& ranks);

}  // namespace ppengine::comm
