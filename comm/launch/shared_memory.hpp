// A folder in /dev/shm for the ranks of one run. The MPI library makes files there while it starts; a rank that is killed then cannot
// remove its own.
#pragma once

#include <filesystem>

namespace ppengine::comm {

class SharedMemoryFolder {
 public:
  // Also removes the folders of launchers that were killed themselves. Without a usable /dev/shm there is no folder and nothing happens.
  SharedMemoryFolder();
  ~SharedMemoryFolder();
  SharedMemoryFolder(const SharedMemoryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }  // may be empty

 private:
  std::filesystem::path path_;
};

}  // namespace ppengine::comm
