// The state of a run as JSON, and the last step of a save.
#include <ppengine/runs/training/checkpoint_parts.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/models/files/checksums.hpp>
#include <ppengine/models/files/save_folder.hpp>

namespace ppengine::runs {
namespace fs = std::filesystem;

std::string state_json(const RunState& state, const engine::Optimizer& optimizer) {
  const nlohmann::json json{{"step", state.step},
                            {"seed", state.seed},
                            {"data", state.data},
                            {"epoch", state.position.epoch},
                            {"next_sequence", state.position.next},
                            {"optimizer", engine::name_of(optimizer.options().kind)},
                            {"optimizer_steps", optimizer.steps()},
                            {"optimizer_states", optimizer.state_names()},
                            {"settings", state.settings}};
  return json.dump(2) + "\n";
}

RunState read_state(const fs::path& folder, engine::Optimizer& optimizer) {
  const fs::path file = folder / state_file;
  models::finish_save(folder);
  if (!fs::exists(file))
    throw FileError(fmt::format("{}: not a checkpoint: {} is missing; --model loads weights alone", folder.string(), state_file));
  const nlohmann::json json = read_json(file, 1 << 20);
  const JsonPlace root(json, file.string());
  root.expect_object();
  constexpr std::int64_t most = INT64_MAX;
  RunState state;
  state.step = root.at("step").integer(0, most);
  state.seed = static_cast<std::uint64_t>(root.integer_or("seed", 0, INT64_MIN, most));
  state.data = root.string_or("data", "");
  state.position.epoch = static_cast<std::uint64_t>(root.at("epoch").integer(0, most));
  state.position.next = static_cast<std::uint64_t>(root.at("next_sequence").integer(0, most));
  state.settings = saved_settings(folder);
  const std::string kind = engine::name_of(optimizer.options().kind), saved = root.at("optimizer").string();
  if (saved != kind)
    throw FileError(fmt::format("{}: was saved by the optimizer {}, not {}: give --optimizer {}", file.string(), saved, kind, saved));
  optimizer.set_steps(root.at("optimizer_steps").integer(0, most));
  return state;
}

namespace {

// Of the earlier checkpoints FOLDER.step-N the last `most` stay.
void remove_earlier(const fs::path& folder, std::int64_t most) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  const std::string begin = folder.filename().string() + ".step-";
  for (const auto& entry : fs::directory_iterator(folder.parent_path())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(begin)) continue;
    if (const auto saved = find_checkpoint(entry.path()); saved && name == begin + std::to_string(saved->step))
      found.emplace_back(saved->step, entry.path());
  }
  std::ranges::sort(found, std::greater<>());
  std::error_code ignored;
  for (auto i = static_cast<std::size_t>(most); i < found.size(); ++i) fs::remove_all(found[i].second, ignored);
}

// The checkpoint that is about to be replaced stays as FOLDER.step-N.
void keep_earlier(const fs::path& folder, std::int64_t keep) {
  const auto before = find_checkpoint(folder);
  if (before) models::copy_save(folder, fmt::format("{}.step-{}", folder.string(), before->step));
  remove_earlier(folder, keep - 1);
}

}  // namespace

void commit_checkpoint(const fs::path& folder, const Commit& how) {
  if (const std::string tensor = how.finite_only ? models::first_not_finite(models::files_aside(folder)) : ""; !tensor.empty())
    throw Error(fmt::format("{} has a NaN or an infinity after step {}: not saved, {} stays as it was", tensor, how.step, folder.string()));
  if (how.keep > 1) keep_earlier(folder, how.keep);
  models::commit_save(folder);
}

}  // namespace ppengine::runs
