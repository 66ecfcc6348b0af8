// Flags that --resume restores from a checkpoint.
#include "flags/resume.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>

#include <ppengine/base/log.hpp>
#include <ppengine/comm/environment.hpp>
#include <ppengine/runs/checkpoint.hpp>

namespace ppengine::cli {
namespace {

namespace fs = std::filesystem;

bool is_saved(const CLI::Option& option) {
  constexpr std::array others{"help",      "model",      "resume",  "save",    "save-every", "save-async", "keep",
                              "eval-data", "eval-every", "json",    "trace",   "grace",      "timeline",   "tensorboard",
                              "dashboard", "adapter",    "dry-run", "verbose", "quiet"};
  if (option.get_lnames().empty()) return false;
  const std::string& name = option.get_lnames()[0];
  if (std::ranges::find(others, name) != others.end()) return false;
  return option.get_group() != "Parallel" || name == "dtype";  // ranks, schedule and devices may change
}

std::string without_brackets(const std::string& text) {
  return text.starts_with('[') && text.ends_with(']') ? text.substr(1, text.size() - 2) : text;
}

std::string default_of(CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "false";
  option.capture_default_str();
  const std::string text = without_brackets(option.get_default_str());
  option.default_str("");  // the help says it in words
  return text;
}

std::string value_of(CLI::Option& option) {
  if (option.count() == 0) return default_of(option);
  if (option.get_items_expected_max() == 0) return option.as<bool>() ? "true" : "false";
  const std::string value = fmt::format("{}", fmt::join(option.results(), ","));
  std::error_code ignored;
  return option.check_name("--data") && fs::exists(value, ignored) ? fs::absolute(value, ignored).lexically_normal().string() : value;
}

// As text, as numbers (1e-3 is 0.001), or as two names of one file.
bool same(const std::string& a, const std::string& b) {
  if (a == b) return true;
  std::error_code ignored;
  if (fs::exists(a, ignored) && fs::equivalent(a, b, ignored)) return true;
  std::istringstream left(a), right(b);
  std::string x, y;
  while (std::getline(left, x, ',')) {
    double first = 0, second = 0;
    if (!std::getline(right, y, ',') || !CLI::detail::lexical_cast(x, first) || !CLI::detail::lexical_cast(y, second) || first != second)
      return false;
  }
  return !a.empty() && !std::getline(right, y, ',');
}

}  // namespace

Settings settings_of(CLI::App& command) {
  Settings settings;
  for (CLI::Option* option : command.get_options([](CLI::Option* one) { return is_saved(*one); }))
    settings[option->get_lnames()[0]] = value_of(*option);
  return settings;
}

Settings settings_to_restore(CLI::App& command, const std::string& checkpoint, const std::function<bool(const CLI::Option&)>& given) {
  Settings restored;
  const CLI::Option* data = command.get_option_no_throw("--data");
  for (const auto& [name, value] : runs::saved_settings(checkpoint)) {
    CLI::Option* option = command.get_option_no_throw("--" + name);
    if (!option || !is_saved(*option) || given(*option) || value.empty() || same(value, default_of(*option))) continue;
    if (name == "seq-len" && data && given(*data)) continue;  // other data may have another length
    restored[name] = value;
  }
  return restored;
}

void warn_of_differences(CLI::App& command, const std::string& checkpoint) {
  const auto me = comm::detect_ranks();
  if (me && (me->source == "ppengine" || me->rank != 0)) return;
  const Settings before = runs::saved_settings(checkpoint);
  const bool constant = before.contains("lr-schedule") && before.at("lr-schedule") == "constant";
  for (const auto& [name, value] : settings_of(command)) {
    const auto saved = before.find(name);
    const CLI::Option* option = command.get_option("--" + name);
    if (saved == before.end() || option->count() == 0 || same(value, saved->second)) continue;
    if (name == "steps" && constant) continue;  // that a run goes on for longer is what resuming is for
    log::warning(fmt::format("--{} is {}, and {} was made with {}", name, value, checkpoint, saved->second));
  }
}

}  // namespace ppengine::cli
