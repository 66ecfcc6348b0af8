// Replacing some files of a folder as one set, and leaving everything else in it alone. New files are written to a hidden folder inside;
// commit_save gives them their names. Killed before that, the folder is as it was; killed in the middle, the next one who opens it finishes
// the job (finish_save), so that a reader of ours sees all of the old files or all of the new ones.
#pragma once

#include <filesystem>
#include <memory>

namespace ppengine {
class FileLock;
}

namespace ppengine::models {

// Holds a folder for what one run saves: made where it is not there (and removed again if nothing was saved), links followed, locked
// against other runs. FileError, before a run has done any work, where it could not be written or a file in it that is not a model's
// would be replaced; Error with host and process where another run has it.
class SaveFolder {
 public:
  explicit SaveFolder(const std::filesystem::path& folder);
  ~SaveFolder();
  SaveFolder(const SaveFolder&) = delete;

 private:
  std::filesystem::path folder_;
  bool made_ = false;
  std::unique_ptr<FileLock> lock_;
};

// Where a path to save to leads: absolute, links followed.
std::filesystem::path save_target(const std::filesystem::path& folder);

// An empty hidden folder inside, made anew: new files go there.
std::filesystem::path begin_save(const std::filesystem::path& folder);
// Where begin_save has put it: for the other ranks.
std::filesystem::path files_aside(const std::filesystem::path& folder);
// All files that begin_save's folder holds, with their checksums (checksums.hpp), take the place of those of the same names in `folder`.
// Shards of an earlier save that no longer belong to the weights are removed.
void commit_save(const std::filesystem::path& folder);
// The files that the last save has put into `folder`, in a folder of their own; an earlier one there is replaced. Links where the file
// system has them: files are replaced and never written to.
void copy_save(const std::filesystem::path& folder, const std::filesystem::path& to);
// Finishes a commit that was cut off. Costs one look where there is nothing to do.
void finish_save(const std::filesystem::path& folder);

}  // namespace ppengine::models
