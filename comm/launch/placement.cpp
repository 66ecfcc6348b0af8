// Which rank runs where: cores, hosts; and what their exit codes mean together.
#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <fstream>

#include <ppengine/base/error.hpp>
#include <ppengine/comm/launch.hpp>

namespace ppengine::comm {

std::vector<int> usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return {0};
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

std::vector<int> by_topology(std::vector<int> cores, const std::string& folder) {
  const auto place = [&](int core) {
    std::array<int, 4> key{0, 0, 0, core};
    const char* const names[] = {"physical_package_id", "die_id", "core_id"};
    for (std::size_t i = 0; i < 3; ++i)
      std::ifstream(fmt::format("{}/cpu{}/topology/{}", folder, core, names[i])) >> key[i];  // stays 0 where it is not told
    return key;
  };
  std::ranges::sort(cores, {}, place);
  return cores;
}

void pin_rank(int local_rank, int local_size) {
  const auto cores = usable_cores();
  if (local_size < 2 || static_cast<long>(cores.size()) != sysconf(_SC_NPROCESSORS_ONLN)) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  const auto sets = core_sets(by_topology(cores), local_size);
  for (const int core : sets.at(static_cast<std::size_t>(local_rank))) CPU_SET(static_cast<std::size_t>(core), &set);
  sched_setaffinity(0, sizeof(set), &set);
}

std::vector<std::vector<int>> core_sets(const std::vector<int>& cores, int ranks) {
  std::vector<std::vector<int>> sets(static_cast<std::size_t>(ranks));
  const std::size_t count = sets.size();
  for (std::size_t r = 0; r < count; ++r) {
    if (cores.size() < count) {
      sets[r].push_back(cores[r % cores.size()]);
      continue;
    }
    for (std::size_t i = r * cores.size() / count; i < (r + 1) * cores.size() / count; ++i) sets[r].push_back(cores[i]);
  }
  return sets;
}

std::vector<LaunchHost> parse_hosts(const std::string& text, int ranks) {
  std::vector<LaunchHost> hosts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::string name = text.substr(at, end - at);
    at = end + 1;
    int count = 0;
    if (const auto colon = name.rfind(':'); colon != std::string::npos) {
      const char* last = name.data() + name.size();
      const auto [stop, error] = std::from_chars(name.data() + colon + 1, last, count);
      if (error != std::errc() || stop != last || count < 1)
        throw ConfigError(fmt::format("host list '{}': '{}' should be name or name:ranks", text, name));
      name.resize(colon);
    }
    if (name.empty() || name.front() == '-') throw ConfigError(fmt::format("host list '{}' has an entry without a name", text));
    hosts.push_back({name, count});
  }
  const bool open = std::ranges::any_of(hosts, [](const LaunchHost& one) { return one.ranks == 0; });
  const auto number = static_cast<int>(hosts.size());
  int sum = 0;
  for (int i = 0; i < number; ++i) {
    LaunchHost& host = hosts[static_cast<std::size_t>(i)];
    if (open) host.ranks = (i + 1) * ranks / number - i * ranks / number;
    sum += host.ranks;
  }
  if (sum != ranks) throw ConfigError(fmt::format("host list '{}' has {} ranks, {} are wanted", text, sum, ranks));
  return hosts;
}

int combined_exit_code(const std::vector<RankEnd>& ranks) {
  constexpr int lost = static_cast<int>(ExitCode::peer_lost), interrupted = static_cast<int>(ExitCode::interrupted);
  int worst = 0;
  for (const RankEnd& end : ranks) {
    // A rank that failed by itself is the reason why the others lost it.
    if (end.signal == 0 && end.code != 0 && end.code != lost && end.code != interrupted) return end.code;
    // One that was told to end, and did not wait for the others, is what those have lost.
    if (end.code == interrupted)
      worst = interrupted;
    else if ((end.signal != 0 || end.code == lost) && worst == 0)
      worst = lost;
  }
  return worst;
}

}  // namespace ppengine::comm
