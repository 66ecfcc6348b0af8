// A lock file that says who holds it.
#include <ppengine/base/file_lock.hpp>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <ppengine/base/error.hpp>

namespace ppengine {
namespace {

// Text from a file that anybody may have written: for a message, so printable and short.
std::string read_holder(int fd) {
  char text[256];
  const ssize_t bytes = ::pread(fd, text, sizeof text, 0);
  std::string holder;
  for (ssize_t i = 0; i < bytes && text[i] != '\n'; ++i) holder += text[i] >= ' ' && text[i] < 127 ? text[i] : '?';
  return holder.empty() ? "another process" : holder;
}

std::string this_process() {
  char host[256] = "?";
  ::gethostname(host, sizeof host - 1);
  return fmt::format("host {}, process {}", host, ::getpid());
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& file, const std::string& what) : file_(file) {
  for (;;) {
    fd_ = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) throw FileError(fmt::format("{}: cannot lock {}: {}", file.string(), what, std::strerror(errno)));
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      const std::string holder = read_holder(fd_);
      ::close(fd_);
      if (reason == ENOLCK || reason == ENOTSUP || reason == EINVAL) {  // a file system without locks
        fd_ = -1;
        return;
      }
      throw Error(fmt::format("{} is in use by another run ({}): wait for it, or name another folder", what, holder), ExitCode::usage);
    }
    struct stat mine{}, named{};  // who held it before may have removed the file between our open and our lock
    if (::fstat(fd_, &mine) == 0 && ::stat(file.c_str(), &named) == 0 && mine.st_ino == named.st_ino) break;
    ::close(fd_);
  }
  const std::string text = this_process() + "\n";
  if (::ftruncate(fd_, 0) == 0) (void)!::pwrite(fd_, text.data(), text.size(), 0);
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  ::unlink(file_.c_str());
  ::close(fd_);
}

}  // namespace ppengine
