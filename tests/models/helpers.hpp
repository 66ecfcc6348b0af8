// What the tests of models share: the reference data, a folder for files, and the text of an error.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <ppengine/base/error.hpp>

namespace ppengine::test {

inline std::filesystem::path data_folder() { return std::filesystem::path(PPENGINE_SOURCE_DIR) / "tests/models/data"; }

struct TemporaryFolder {
  static inline int made = 0;  // there may be several at a time
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("ppengine_test_models_" + std::to_string(::getpid()) + "_" + std::to_string(++made));
  TemporaryFolder() { std::filesystem::create_directories(path); }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return path / name;
  }
};

// The message of the FileError or ConfigError that an action ends with.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const FileError& error) {
    return error.what();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace ppengine::test
