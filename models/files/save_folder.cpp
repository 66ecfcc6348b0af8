// Replacing some files of a folder as one set.
#include <ppengine/models/files/save_folder.hpp>

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/base/file_lock.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/models/files/checksums.hpp>
#include <ppengine/models/files/safetensors_writer.hpp>

namespace ppengine::models {
namespace {

namespace fs = std::filesystem;
constexpr const char* aside_name = ".saving";     // files of a save that is not whole yet
constexpr const char* whole_name = ".saved";      // of one that is whole, on their way to their names
constexpr const char* removed_name = ".removed";  // in there: names of files that go
constexpr const char* lock_name = ".ppengine.lock";
// What a checkpoint is made of, beside copies of a model's small files.
constexpr const char* own_names[] = {"config.json",        "model.safetensors",   "model.safetensors.index.json", "optimizer.safetensors",
                                     "trainer_state.json", "adapter_config.json", "adapter_model.safetensors"};

bool is_model_config(const fs::path& file) {
  std::error_code failed;
  if (!fs::is_regular_file(file, failed)) return false;
  try {
    const nlohmann::json json = read_json(file, 1 << 24);
    return json.is_object() && (json.contains("model_type") || json.contains("peft_type"));
  } catch (const Error&) {
    return false;
  }
}

// A folder that was left behind by a save of an earlier version: nothing but files of a checkpoint in it.
void remove_old_aside(const fs::path& aside) {
  std::error_code failed;
  if (!fs::is_directory(fs::symlink_status(aside, failed))) return;
  for (const auto& entry : fs::directory_iterator(aside, failed)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.ends_with(".part") || name.ends_with(".json") || name.ends_with(".safetensors") || name.ends_with(".txt") ||
                      name.ends_with(".model") || name.ends_with(".jinja");
    if (!ours || !entry.is_regular_file()) return;
  }
  fs::remove_all(aside, failed);
}

void move_over(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) == 0 || errno == ENOENT) return;  // gone: another process finishes the same save
  throw FileError(fmt::format("{}: cannot be replaced by a newer file: {}", to.string(), std::strerror(errno)));
}

}  // namespace

fs::path save_target(const fs::path& folder) {
  const fs::path plain = fs::absolute(folder).lexically_normal();
  return follow_links(plain.has_filename() ? plain : plain.parent_path());
}

fs::path files_aside(const fs::path& folder) { return folder / aside_name; }

fs::path begin_save(const fs::path& folder) {
  const fs::path aside = folder / aside_name;
  std::error_code failed;
  finish_save(folder);
  fs::remove_all(aside, failed);
  fs::create_directories(aside, failed);
  if (failed) throw FileError(fmt::format("{}: cannot be made: {}", aside.string(), failed.message()));
  return aside;
}

SaveFolder::SaveFolder(const fs::path& target) : folder_(save_target(target)) {
  std::error_code failed;
  if (fs::exists(folder_, failed) && !fs::is_directory(folder_))
    throw FileError(fmt::format("{}: is a file: --save wants a folder", folder_.string()));
  const bool has_model = is_model_config(folder_ / "config.json") || is_model_config(folder_ / "adapter_config.json") ||
                         fs::exists(folder_ / "program.pt2", failed);
  for (const char* name : own_names)
    if (!has_model && fs::exists(folder_ / name, failed))
      throw FileError(
          fmt::format("{}: is not part of a model, and saving would replace it: name another folder", (folder_ / name).string()));
  made_ = fs::create_directories(folder_, failed);
  if (failed) throw FileError(fmt::format("{}: cannot be made: {}", folder_.string(), failed.message()));
  lock_ = std::make_unique<FileLock>(folder_ / lock_name, folder_.string());
  fs::remove_all(begin_save(folder_), failed);
  remove_old_aside(folder_.string() + ".saving");
}

SaveFolder::~SaveFolder() {
  std::error_code ignored;
  lock_.reset();
  if (made_) fs::remove(folder_, ignored);  // only where it is empty
}

void commit_save(const fs::path& folder) {
  const fs::path aside = folder / aside_name;
  write_checksums(aside);
  std::set<std::string> fresh;
  for (const auto& entry : fs::directory_iterator(aside)) fresh.insert(entry.path().filename().string());
  std::string gone;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    for (const char* stem : {"model", "optimizer", "adapter_model"})
      if (fresh.contains(std::string(stem) + ".safetensors") || fresh.contains(std::string(stem) + ".safetensors.index.json"))
        if (is_shard_of(name, stem) && !fresh.contains(name)) gone += name + "\n";
  }
  write_file_atomically(aside / removed_name, gone);
  sync_folder(aside);
  if (::rename(aside.c_str(), (folder / whole_name).c_str()) != 0)
    throw FileError(fmt::format("{}: the finished files cannot take their place: {}", aside.string(), std::strerror(errno)));
  sync_folder(folder);
  finish_save(folder);
}

void copy_save(const fs::path& folder, const fs::path& to) {
  const fs::path part = to.string() + ".part";
  std::error_code failed;
  fs::remove_all(part, failed);
  fs::create_directories(part);
  std::vector<std::string> names = saved_files(folder);
  names.emplace_back(checksums_file);
  for (const std::string& name : names) {
    if (!fs::exists(folder / name, failed)) continue;
    fs::create_hard_link(folder / name, part / name, failed);
    if (failed) fs::copy_file(folder / name, part / name);
  }
  sync_folder(part);
  fs::remove_all(to, failed);
  fs::rename(part, to);
  sync_folder(to.parent_path());
}

void finish_save(const fs::path& folder) {
  const fs::path whole = folder / whole_name;
  std::error_code failed;
  if (!fs::is_directory(whole, failed)) return;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(whole, failed)) names.push_back(entry.path().filename().string());
  for (const std::string& name : names)
    if (name != removed_name) move_over(whole / name, folder / name);
  std::ifstream gone(whole / removed_name);
  for (std::string name; std::getline(gone, name);)
    if (name.find('/') == std::string::npos && name.ends_with(".safetensors")) fs::remove(folder / name, failed);
  fs::remove(folder / whole_name / removed_name, failed);
  fs::remove(whole, failed);
  sync_folder(folder);
}

}  // namespace ppengine::models
