// Files: read-only memory maps, whole small files, and output files that appear under their name only when complete.
#include <ppengine/base/file.hpp>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <ppengine/base/error.hpp>
#include <ppengine/base/results.hpp>

namespace ppengine {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* action) {
  if (errno == ENOSPC || errno == EDQUOT || errno == EIO)  // the file was named rightly, the run has failed
    throw Error(fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno)));
  if (errno == EMFILE) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    throw Error(fmt::format("{}: cannot {}: this process may have {} files open and all are in use: raise the limit (ulimit -n)",
                            path.string(), action, limit.rlim_cur));
  }
  throw FileError(fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno)));
}

int open_file(const std::filesystem::path& path, int flags) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
  return fd;
}

int open_or_fail(const std::filesystem::path& path, int flags, const char* action) {
  const int fd = open_file(path, flags);
  if (fd < 0) fail(path, action);
  return fd;
}

std::uint64_t regular_size(int fd, const std::filesystem::path& path) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) fail(path, "read its size");
  if (!S_ISREG(info.st_mode)) throw FileError(fmt::format("{}: is not a regular file", path.string()));
  return static_cast<std::uint64_t>(info.st_size);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

struct Closer {
  int fd;
  ~Closer() {
    if (fd >= 0) ::close(fd);
  }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  Closer file{open_or_fail(path, O_RDONLY | O_NONBLOCK, "open")};  // nonblocking: a pipe must not hang us
  size_ = regular_size(file.fd, path);
  if (size_ > 0) {  // an empty map is not allowed, an empty span is fine
    void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (map == MAP_FAILED) fail(path, "map it into memory");
    data_ = static_cast<const std::byte*>(map);
  }
  fd_ = std::exchange(file.fd, -1);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  if (fd_ >= 0) ::close(fd_);
}

void MappedFile::expect_whole() const {
  struct stat info{};
  if (::fstat(fd_, &info) == 0 && static_cast<std::uint64_t>(info.st_size) >= size_) return;
  throw FileError(fmt::format("{}: has become shorter while it was in use ({} bytes, {} when it was opened): leave it alone during a run",
                              path_.string(), info.st_size, size_));
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      fd_(std::exchange(other.fd_, -1)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  return *this;
}

void release_mapped(const void* data, std::size_t bytes) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<std::uintptr_t>(data) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes) / page * page;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const Closer file{open_or_fail(path, O_RDONLY | O_NONBLOCK, "open")};
  const std::uint64_t size = regular_size(file.fd, path);
  if (size > max_bytes)
    throw FileError(fmt::format("{}: is {} bytes, more than the {} expected of such a file", path.string(), size, max_bytes));
  std::string text(size, '\0');
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(file.fd, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "read");
    if (got == 0) throw FileError(fmt::format("{}: became shorter while it was read", path.string()));
    done += static_cast<std::size_t>(got);
  }
  return text;
}

std::filesystem::path follow_links(const std::filesystem::path& path) {
  constexpr int most = 40;  // as in the kernel
  std::filesystem::path at = path;
  std::error_code failed;
  for (int links = 0; std::filesystem::is_symlink(std::filesystem::symlink_status(at, failed)); ++links) {
    if (links == most) throw FileError(fmt::format("{}: its links lead in a loop", path.string()));
    const std::filesystem::path to = std::filesystem::read_symlink(at, failed);
    if (failed) throw FileError(fmt::format("{}: cannot follow the link: {}", at.string(), failed.message()));
    at = to.is_absolute() ? to : folder_of(at) / to;
  }
  if (failed == std::errc::too_many_symbolic_link_levels) throw FileError(fmt::format("{}: its links lead in a loop", path.string()));
  return at;
}

namespace {

enum class Target { replaced, written };

// How a path is written to, with its links followed.
Target target_of(std::filesystem::path& path) {
  struct stat info{};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (!exists && errno == ELOOP) throw FileError(fmt::format("{}: its links lead in a loop", path.string()));
  if (exists && S_ISDIR(info.st_mode)) throw FileError(fmt::format("{}: is a folder", path.string()));
  if (exists && !S_ISREG(info.st_mode)) return Target::written;
  // /dev/stdout: a file that this process has open already, where others' text may stand.
  std::filesystem::path at = path;
  for (std::error_code failed; std::filesystem::is_symlink(std::filesystem::symlink_status(at, failed)) && !failed;) {
    const std::filesystem::path to = std::filesystem::read_symlink(at, failed);
    at = to.is_absolute() ? to : folder_of(at) / to;
    if (exists && at.string().starts_with("/proc/")) return Target::written;
  }
  path = follow_links(path);
  return Target::replaced;
}

}  // namespace

void check_can_write(const std::filesystem::path& path) {
  std::filesystem::path target = results::opened_as(path);
  const bool replaced = target_of(target) == Target::replaced;
  const std::filesystem::path folder = folder_of(target);
  if (replaced && !std::filesystem::is_directory(folder))
    throw FileError(fmt::format("{}: the folder {} is not there", path.string(), folder.string()));
  if (::access(replaced ? folder.c_str() : target.c_str(), W_OK) != 0) fail(path, "write");
}

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(results::opened_as(path)) {
  static std::atomic<unsigned> counter{0};
  if (target_of(path_) == Target::written) {
    fd_ = open_or_fail(path_, O_WRONLY | O_APPEND, "open");
    return;
  }
  aside_ = folder_of(path_) / fmt::format(".{}.{}.{}.part", path_.filename().string(), ::getpid(), counter++);
  fd_ = open_file(aside_, O_WRONLY | O_CREAT | O_TRUNC);
  if (fd_ < 0) fail(path_, "be written");  // the name that the user knows
  struct stat before{};
  if (::stat(path_.c_str(), &before) == 0) (void)!::fchmod(fd_, before.st_mode & 07777);  // who could read it before still can
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), aside_(std::move(other.aside_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  if (!aside_.empty()) ::unlink(aside_.c_str());
}

void AtomicFile::write(const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::write(fd_, from, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(path_, "write");
    from += done;
    bytes -= static_cast<std::size_t>(done);
  }
}

void AtomicFile::commit() {
  if (aside_.empty()) {
    if (::close(std::exchange(fd_, -1)) != 0) fail(path_, "write");
    return;
  }
  if (::fsync(fd_) != 0) fail(path_, "sync");
  if (::rename(aside_.c_str(), path_.c_str()) != 0) fail(path_, "give the finished file its name");
  ::close(std::exchange(fd_, -1));
  sync_folder(folder_of(path_));
}

void write_file_atomically(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

RandomAccessFile::RandomAccessFile(const std::filesystem::path& path, Mode mode) : path_(path) {
  const int flags = mode == Mode::read ? O_RDONLY | O_NONBLOCK : mode == Mode::create ? O_RDWR | O_CREAT | O_TRUNC : O_RDWR;
  fd_ = open_or_fail(path, flags, mode == Mode::create ? "create" : "open");
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

RandomAccessFile::~RandomAccessFile() {
  if (fd_ >= 0) ::close(fd_);
}

std::uint64_t RandomAccessFile::size() const { return regular_size(fd_, path_); }

void RandomAccessFile::allocate(std::uint64_t bytes) {
  if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail(path_, "set its size");
  if (bytes == 0) return;
  int code;
  do code = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes));
  while (code == EINTR);
  if (code == EOPNOTSUPP || code == EINVAL) return;  // some file systems cannot reserve; writing will tell
  if (code != 0) {
    errno = code;
    fail(path_, "reserve space");
  }
}

void RandomAccessFile::write_at(std::uint64_t offset, const void* data, std::size_t bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(path_, "write");
    from += done;
    offset += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
}

void RandomAccessFile::read_at(std::uint64_t offset, void* data, std::size_t bytes) const {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t done = ::pread(fd_, to, bytes, static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail(path_, "read");
    if (done == 0) throw FileError(fmt::format("{}: ends before byte {}", path_.string(), offset + bytes));
    to += done;
    offset += static_cast<std::uint64_t>(done);
    bytes -= static_cast<std::size_t>(done);
  }
}

void RandomAccessFile::sync() {
  if (::fsync(fd_) != 0) fail(path_, "sync");
}

void rename_and_sync(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to, "give the finished file its name");
  sync_folder(folder_of(to));
}

void sync_folder(const std::filesystem::path& folder) {
  const Closer file{open_or_fail(folder, O_RDONLY | O_DIRECTORY, "open the folder")};
  if (::fsync(file.fd) != 0 && errno != EINVAL) fail(folder, "sync the folder");
}

}  // namespace ppengine
