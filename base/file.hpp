// Files: read-only memory maps, whole small files, and output files that appear under their name only when complete.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace ppengine {

// A file mapped read-only. Throws FileError when it cannot be opened, is not a regular file, or cannot be mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  // FileError where the file has become shorter since it was mapped: reading what is gone would end the process with SIGBUS.
  void expect_whole() const;

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  int fd_ = -1;
};

// Mapped bytes that are not needed any more: their pages leave the process's resident memory, and come back from the file if read again.
void release_mapped(const void* data, std::size_t bytes);

// The whole file as text; FileError when it is larger than max_bytes.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_bytes);

// A file written aside (same folder, a name of its own) that takes its real name in commit(): written, synced, renamed,
// folder synced. Until then, and on any error, a previous file of that name stays as it is. Without commit() the
// file aside is removed. A link is followed: what it points to is replaced, and the link stays. What is no regular file (a device, a pipe,
// this process's own output by /dev/stdout) is written to directly. Throws FileError (a folder that is not there, no permission, links in
// a loop), and Error where the disk is full.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;

  void write(const void* data, std::size_t bytes);  // appends
  void write(std::string_view text) { write(text.data(), text.size()); }
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path aside_;  // empty: written directly
  int fd_ = -1;
};

// Where a path leads when its links are followed to the end; that need not exist. FileError for links in a loop.
std::filesystem::path follow_links(const std::filesystem::path& path);

// FileError where AtomicFile could not write here: for the start of a long run.
void check_can_write(const std::filesystem::path& path);

void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// A file descriptor with whole reads and writes at offsets; safe to use from several threads at once.
class RandomAccessFile {
 public:
  enum class Mode { read, create, update };
  RandomAccessFile(const std::filesystem::path& path, Mode mode);
  ~RandomAccessFile();
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const;
  // Makes the file exactly this long and reserves the space, so that a full disk shows here and not later.
  void allocate(std::uint64_t bytes);
  void write_at(std::uint64_t offset, const void* data, std::size_t bytes);
  void read_at(std::uint64_t offset, void* data, std::size_t bytes) const;
  void sync();

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

// Renames within one file system and syncs the folder; replaces an existing file.
void rename_and_sync(const std::filesystem::path& from, const std::filesystem::path& to);
void sync_folder(const std::filesystem::path& folder);

}  // namespace ppengine
