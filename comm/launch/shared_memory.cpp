// A folder in /dev/shm for the ranks of one run.
#include <ppengine/comm/launch/shared_memory.hpp>

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace ppengine::comm {
namespace {

namespace fs = std::filesystem;
const std::string prefix = "ppengine-";

// "ppengine-1234-x7Gh2a" of a process 1234 that is no more, and ours.
bool is_left_over(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(prefix)) return false;
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), pid);
  if (error != std::errc() || pid <= 0 || end == name.data() + name.size() || *end != '-') return false;
  struct stat found{};
  return lstat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == geteuid() && kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

SharedMemoryFolder::SharedMemoryFolder() {
  const fs::path shared = "/dev/shm";
  std::error_code ignored;
  std::vector<fs::path> left_over;
  for (const auto& entry : fs::directory_iterator(shared, ignored))
    if (is_left_over(entry.path())) left_over.push_back(entry.path());
  for (const fs::path& one : left_over) fs::remove_all(one, ignored);
  std::string name = (shared / fmt::format("{}{}-XXXXXX", prefix, getpid())).string();
  if (mkdtemp(name.data())) path_ = name;
}

SharedMemoryFolder::~SharedMemoryFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace ppengine::comm
