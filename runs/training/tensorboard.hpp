// TensorBoard event files: scalars by tag and step, in the form that TensorBoard reads.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace ppengine::runs {

class TensorBoardFile {
 public:
  // A new file in the folder, which is made where it is missing. FileError where that cannot be.
  explicit TensorBoardFile(const std::filesystem::path& folder);
  // All of one step; on the disk when it returns.
  void write(std::int64_t step, const std::vector<std::pair<std::string, double>>& scalars);
  const std::filesystem::path& path() const { return path_; }

 private:
  void record(const std::string& event);
  std::filesystem::path path_;
  std::ofstream file_;
};

}  // namespace ppengine::runs
