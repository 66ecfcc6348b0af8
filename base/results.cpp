// Where results go.
#include <ppengine/base/results.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>

namespace ppengine::results {
namespace {

int kept = STDOUT_FILENO;

}  // namespace

int descriptor() { return kept; }

void keep_apart() noexcept {
  if (kept != STDOUT_FILENO) return;
  int copy = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (copy < 0) {  // stdout is closed: writing results fails, as it should
    const int full = open("/dev/full", O_WRONLY);
    copy = fcntl(full, F_DUPFD_CLOEXEC, 3);
  }
  if (copy < 0) return;
  if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {  // stderr is closed: what libraries print is lost
    const int nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    if (nowhere > STDERR_FILENO) close(nowhere);
  }
  kept = copy;
}

std::filesystem::path opened_as(const std::filesystem::path& path) {
  static constexpr std::array names{"/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
  if (kept == STDOUT_FILENO || std::ranges::find(names, path.string()) == names.end()) return path;
  return "/proc/self/fd/" + std::to_string(kept);
}

}  // namespace ppengine::results
