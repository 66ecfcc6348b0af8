// Flags that come from the environment and from the TOML file given by --config.
#include "flags/settings.hpp"

#include <fmt/core.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <set>

#include <ppengine/base/error.hpp>

#include "flags/resume.hpp"

namespace ppengine::cli {
namespace {

CLI::App* find_command(CLI::App* app, const std::string& name) {
  for (CLI::App* command : app->get_subcommands([](CLI::App*) { return true; }))
    if (command->get_name() == name) return command;
  return nullptr;
}

bool takes_value(const CLI::Option& option) { return option.get_items_expected_min() > 0; }

bool takes_one_value(const CLI::Option& option) {
  return option.get_items_expected_max() == 1 && takes_value(option) && option.get_multi_option_policy() == CLI::MultiOptionPolicy::Throw;
}

bool settable(const CLI::App& app, const CLI::Option& option) {
  if (option.get_lnames().empty()) return false;
  return &option != app.get_help_ptr() && option.get_lnames()[0] != "version" && option.get_lnames()[0] != "config";
}

class Completer {
 public:
  Completer(CLI::App& app, const std::vector<std::string>& typed) : typed_(typed), levels_{{&app, 0, {}}} { scan(); }

  CommandLine complete() {
    add_environment();
    if (const std::string file = config_file(); !file.empty()) add_file(file);
    if (!resume_.empty()) add_checkpoint();
    CommandLine line;
    std::size_t from = 0;
    for (const Level& level : levels_) {
      line.arguments.insert(line.arguments.end(), typed_.begin() + from, typed_.begin() + level.begin);
      line.arguments.insert(line.arguments.end(), level.added.begin(), level.added.end());
      line.commands.push_back(level.app);
      from = level.begin;
    }
    line.arguments.insert(line.arguments.end(), typed_.begin() + from, typed_.end());
    line.added = added_;
    line.repeated = repeated_;
    return line;
  }

 private:
  struct Level {
    CLI::App* app;
    std::size_t begin;  // its own arguments begin here
    std::vector<std::string> added;
  };

  // Finds which command was chosen and which flags were typed.
  void scan() {
    for (std::size_t i = 0; i < typed_.size() && typed_[i] != "--"; ++i) {
      const std::string& word = typed_[i];
      if (word.size() > 1 && word[0] == '-') {
        const std::size_t equals = word.find('=');
        const CLI::Option* option = note_typed(word.substr(0, equals));
        if (option && equals == std::string::npos && takes_value(*option) && i + 1 < typed_.size()) ++i;
        if (option && option->check_name("--config")) config_ = equals == std::string::npos ? typed_[i] : word.substr(equals + 1);
        if (option && option->check_name("--resume")) resume_ = equals == std::string::npos ? typed_[i] : word.substr(equals + 1);
      } else if (CLI::App* command = find_command(levels_.back().app, word)) {
        levels_.push_back({command, i + 1, {}});
      }
    }
  }

  const CLI::Option* note_typed(const std::string& word) {
    if (word.starts_with("--")) return note_one(word);
    const CLI::Option* last = nullptr;  // -qv is -q -v; -n4 is -n with a value
    for (std::size_t i = 1; i < word.size(); ++i) {
      const CLI::Option* option = note_one(std::string("-") + word[i]);
      if (option && takes_value(*option)) return i + 1 == word.size() ? option : nullptr;
      if (option) last = option;
    }
    return last;
  }

  const CLI::Option* note_one(const std::string& name) {
    for (auto level = levels_.rbegin(); level != levels_.rend(); ++level)
      if (const CLI::Option* option = level->app->get_option_no_throw(name)) {
        if (!given_.insert(option).second && takes_one_value(*option)) repeated_ = name;
        return option;
      }
    return nullptr;
  }

  // A setting also steps back before a typed flag that excludes it.
  bool is_free(const CLI::Option& option) const {
    return !given_.contains(&option) &&
           std::ranges::none_of(option.get_excludes(), [&](const CLI::Option* other) { return given_.contains(other); });
  }

  void add(Level& level, const CLI::Option& option, const std::vector<std::string>& values, const std::string& origin) {
    given_.insert(&option);
    const std::string flag = "--" + option.get_lnames()[0];
    added_.push_back({flag, origin});
    if (flag == "--resume" && !values.empty()) resume_ = values.back();
    for (const std::string& value : values) {
      if (value.empty() && takes_value(option)) {
        level.added.push_back(flag);
        level.added.push_back(value);
      } else {
        level.added.push_back(flag + "=" + value);
      }
    }
  }

  void add_environment() {
    for (Level& level : levels_)
      for (const CLI::Option* option : level.app->get_options()) {
        if (!settable(*level.app, *option) || !is_free(*option)) continue;
        const std::string variable = environment_name(option->get_lnames()[0]);
        const char* value = std::getenv(variable.c_str());
        if (value && *value) add(level, *option, {value}, variable);
      }
  }

  std::string config_file() const {
    if (!config_.empty()) return config_;
    const char* variable = std::getenv("PPENGINE_CONFIG");
    return variable ? variable : "";
  }

  void add_file(const std::string& path) {
    if (std::filesystem::is_directory(path)) throw FileError(fmt::format("{}: is a folder: --config wants a TOML file", path));
    try {
      const toml::table table = toml::parse_file(path);
      file_ = path;
      add_table(table, levels_[0].app);
    } catch (const toml::parse_error& e) {
      const auto line = e.source().begin.line;
      throw FileError(line ? fmt::format("{}:{}: not TOML: {}", path, line, e.description())
                           : fmt::format("{}: {}", path, e.description()));
    }
  }

  // What a run was made with holds for the one that goes on from it, unless it is told otherwise.
  void add_checkpoint() {
    Level& level = levels_.back();
    for (const auto& [name, value] :
         settings_to_restore(*level.app, resume_, [&](const CLI::Option& one) { return given_.contains(&one); }))
      add(level, *level.app->get_option("--" + name), {value}, "the checkpoint " + resume_);
  }

  [[noreturn]] void reject(const toml::node& node, const std::string& text) const {
    throw FileError(fmt::format("{}:{}: {}", file_, node.source().begin.line, text));
  }

  void add_table(const toml::table& table, CLI::App* app) {
    for (const auto& [toml_key, node] : table) {
      std::string key(toml_key.str());
      std::ranges::replace(key, '_', '-');
      if (const toml::table* below = node.as_table()) {
        CLI::App* command = find_command(app, key);
        if (!command) reject(node, fmt::format("there is no command '{}'", key));
        add_table(*below, command);
      } else {
        add_key(key, node, app);
      }
    }
  }

  // A key at the top of the file is meant for the chosen command. One under another command is only checked.
  void add_key(const std::string& key, const toml::node& node, CLI::App* app) {
    Level* level = nullptr;
    const CLI::Option* option = nullptr;
    for (auto each = levels_.rbegin(); each != levels_.rend() && !option; ++each)
      if (app == levels_[0].app || each->app == app) {
        option = each->app->get_option_no_throw("--" + key);
        level = &*each;
      }
    if (!option) option = app->get_option_no_throw("--" + key), level = nullptr;
    const CLI::App* owner = app == levels_[0].app ? levels_.back().app : app;
    if (!option || !settable(*app, *option))
      reject(node,
             fmt::format("'{}' is not a flag of '{}'; flags of one command can stand under [command]", key, owner->get_display_name()));
    if (level && is_free(*option)) add(*level, *option, values_of(*option, node), fmt::format("{}:{}", file_, node.source().begin.line));
  }

  std::vector<std::string> values_of(const CLI::Option& option, const toml::node& node) const {
    const toml::array* array = node.as_array();
    if (!array) return {text_of(node)};
    std::vector<std::string> values;
    for (const toml::node& element : *array) values.push_back(text_of(element));
    const char delimiter = option.get_delimiter();
    if (delimiter == '\0') return values;
    std::string joined;
    for (const std::string& value : values) joined += (joined.empty() ? "" : std::string(1, delimiter)) + value;
    return {joined};
  }

  std::string text_of(const toml::node& node) const {
    if (const auto* value = node.as_string()) return value->get();
    if (const auto* value = node.as_integer()) return fmt::format("{}", value->get());
    if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
    if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
    reject(node, "a flag's value is a text, a number, true or false, or a list of these");
  }

  const std::vector<std::string>& typed_;
  std::vector<Level> levels_;
  std::set<const CLI::Option*> given_;
  std::vector<Setting> added_;
  std::string config_, resume_, repeated_;
  std::string file_;
};

}  // namespace

CommandLine complete_command_line(CLI::App& app, const std::vector<std::string>& typed) { return Completer(app, typed).complete(); }

std::string environment_name(const std::string& flag) {
  std::string name = "PPENGINE_";
  for (const char c : flag.substr(flag.find_first_not_of('-')))
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return name;
}

std::string origin_in(const std::string& text, const CommandLine& line) {
  for (const Setting& setting : line.added) {
    const std::size_t at = text.find(setting.flag);
    if (at == std::string::npos) continue;
    const std::size_t end = at + setting.flag.size();
    if (end == text.size() || (!std::isalnum(static_cast<unsigned char>(text[end])) && text[end] != '-')) return setting.origin;
  }
  return {};
}

}  // namespace ppengine::cli
