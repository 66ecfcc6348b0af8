// checksums.json of a saved folder: a CRC-32 of every tensor and of every other file, so that damage is noticed when they are read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <ppengine/models/files/safetensors.hpp>

namespace ppengine::models {

inline constexpr const char* checksums_file = "checksums.json";

// Of all files in the folder.
void write_checksums(const std::filesystem::path& folder);

// The tensors' checksums that a folder has. Empty where it has none, and for files that another program has written anew since (their
// headers differ): those are not ours any more.
class Checksums {
 public:
  // The folder, or a file in it.
  explicit Checksums(const std::filesystem::path& folder_or_file);
  // FileError that names file and tensor where its bytes are not those that were saved.
  void verify(const StoredTensor& tensor) const;

 private:
  std::map<std::string, std::map<std::string, std::uint32_t>> tensors_;  // by file name and tensor
};

// Whether a small file (no tensors) of the folder is one that was saved there, and unchanged since.
bool is_as_saved(const std::filesystem::path& folder, const std::string& name);

// Names of the files that the last save has put into the folder; none where it has no checksums.
std::vector<std::string> saved_files(const std::filesystem::path& folder);

struct Verification {
  std::int64_t tensors = 0, files = 0;  // that are as they were saved
  std::vector<std::string> damaged;     // a text each
};
// Reads everything. FileError where the folder has no checksums.
Verification verify_folder(const std::filesystem::path& folder);

// The first tensor of a folder's weights that holds a NaN or an infinity; empty: none.
std::string first_not_finite(const std::filesystem::path& folder);

}  // namespace ppengine::models
