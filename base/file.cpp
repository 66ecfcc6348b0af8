// Files: read-only memory maps, whole small files, and files that appear under their name only when complete.
#include <ppengine/base/file.hpp>

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <ppengine/base/error.hpp>

namespace ppengine {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* action) {
  if (errno == ENOSPC || errno == EDQUOT || errno == EIO)  // the file was named rightly, the run has failed
    throw Error(fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno)));
  throw FileError(fmt::format("{}: cannot {}: {}", path.string(), action, std::strerror(errno)));
}

int open_or_fail(const std::filesystem::path& path, int flags, const char* action) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
  while (fd < 0 && errno == EINTR);
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
  ~Closer() { ::close(fd); }
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) : path_(path) {
  const Closer file{open_or_fail(path, O_RDONLY | O_NONBLOCK, "open")};  // nonblocking: a pipe must not hang us
  size_ = regular_size(file.fd, path);
  if (size_ == 0) return;  // an empty map is not allowed, an empty span is fine
  void* map = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (map == MAP_FAILED) fail(path, "map it into memory");
  data_ = static_cast<const std::byte*>(map);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
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

AtomicFile::AtomicFile(const std::filesystem::path& path) : path_(path) {
  static std::atomic<unsigned> counter{0};
  aside_ = folder_of(path) / fmt::format(".{}.{}.{}.part", path.filename().string(), ::getpid(), counter++);
  fd_ = open_or_fail(aside_, O_WRONLY | O_CREAT | O_TRUNC, "create");
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)), aside_(std::move(other.aside_)), fd_(std::exchange(other.fd_, -1)) {}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;
  ::close(fd_);
  ::unlink(aside_.c_str());
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
