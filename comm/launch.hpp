// Starts ranks as processes, watches over them, and ends with one exit code.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace ppengine::comm {

struct LaunchHost {
  std::string name;  // reached by ssh (PPENGINE_SSH names another program) unless it is this machine
  int ranks;
};

struct LaunchOptions {
  std::vector<std::string> command;  // the program and its arguments, the same for every rank
  int ranks = 1;
  std::vector<LaunchHost> hosts;  // empty: all on this machine
  bool pin = true;                // a set of cores for each rank of this machine
  bool prefix = true;             // "[rank 1] " before the lines of every rank but 0
  int restarts = 0;               // how often to start again after a rank was lost; PPENGINE_RESTART counts
  // How long ranks may take to end by themselves after one has failed.
  std::chrono::milliseconds patience{35000};
  std::map<std::string, std::string> environment;  // for every rank
};

// How a rank ended: an exit code, or the signal that killed it.
struct RankEnd {
  int code = -1;
  int signal = 0;
};

struct LaunchResult {
  // 0 when all ranks ended with 0; the code of the rank that failed by itself (1, 2, 3); 4 when a rank was lost; 130 interrupted.
  int exit_code = 0;
  std::vector<RankEnd> ranks;
  int restarts = 0;
};

// SIGINT and SIGTERM are passed on to the ranks. No rank outlives this process.
LaunchResult launch(const LaunchOptions& options);

// The cores of each rank: those that this process may use, in even, neighbouring sets; shared when there are more ranks than cores.
std::vector<std::vector<int>> core_sets(const std::vector<int>& cores, int ranks);
std::vector<int> usable_cores();
// "node1:4,node2:4" or "node1,node2" (ranks spread evenly); ConfigError when it does not add up.
std::vector<LaunchHost> parse_hosts(const std::string& text, int ranks);
// One exit code for all ranks.
int combined_exit_code(const std::vector<RankEnd>& ranks);

}  // namespace ppengine::comm
