// A lock file that says who holds it: one process at a time, on this host or, where the file system has locks, on another.
#pragma once

#include <filesystem>
#include <string>

namespace ppengine {

class FileLock {
 public:
  // Makes the file where it is not there. Error, with host and process of the holder, where another has it; `what` names the thing that it
  // stands for. The lock ends with the object or the process, whatever ends that; a file that is left behind locks nothing.
  FileLock(const std::filesystem::path& file, const std::string& what);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  std::filesystem::path file_;
  int fd_ = -1;
};

}  // namespace ppengine
