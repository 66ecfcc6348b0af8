// Messages about wrong usage.
#include "flags/usage.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <array>
#include <set>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/base/printable.hpp>
#include <ppengine/comm/environment.hpp>

#include "flags/suggest.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

std::vector<const CLI::App*> commands_below(const CLI::App& app) {
  std::vector<const CLI::App*> all;
  for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
    all.push_back(each);
    for (const CLI::App* below : commands_below(*each)) all.push_back(below);
  }
  return all;
}

// "bench train" for the command below bench.
std::string called(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent && parent->get_parent() ? called(*parent) + " " + command.get_name() : command.get_name();
}

// A flag of other commands, or one that is misspelt.
std::string explain_flag(const std::string& word, const CLI::App& app, const CommandLine& line) {
  std::vector<std::string> owners, known;
  for (const CLI::App* each : commands_below(app))
    if (each->get_option_no_throw(word)) owners.push_back(called(*each));
  const CLI::App& command = *line.commands.back();
  if (!owners.empty() && command.get_parent())
    return fmt::format("'{}' is not a flag of {}: it is one of {}", word, called(command), fmt::join(owners, ", "));
  for (const CLI::App* each : line.commands)
    for (const CLI::Option* option : each->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  const std::string meant = nearest(word, known);
  return fmt::format("there is no flag '{}'{}", word, meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
}

std::string no_such_command(const std::string& word, const CLI::App& below) {
  std::vector<std::string> known;
  for (const CLI::App* each : below.get_subcommands([](const CLI::App*) { return true; })) known.push_back(each->get_name());
  const std::string meant = nearest(word, known);
  return fmt::format("there is no command '{}'{}", word, meant.empty() ? "" : fmt::format("; did you mean '{}'?", meant));
}

// What was wrong with a command line that left words over or chose no command.
std::string explain_leftover(const CLI::App& app, const CommandLine& line, const std::string& otherwise) {
  const std::vector<std::string> leftover = app.remaining(true);
  std::vector<std::string> known;
  for (const CLI::App* each : line.commands.back()->get_subcommands([](const CLI::App*) { return true; }))
    known.push_back(each->get_name());
  if (leftover.empty() && otherwise.find("subcommand") != otherwise.npos)
    return fmt::format("a command is missing: one of {}", fmt::join(known, ", "));
  if (leftover.empty()) return otherwise;
  const std::string word = leftover[0].substr(0, leftover[0].find('='));
  if (word.starts_with('-')) return explain_flag(word, app, line);
  return known.empty() ? fmt::format("unexpected argument '{}'", word) : no_such_command(word, *line.commands.back());
}

bool is_number(const std::string& text) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value);
}

// CLI11's "--steps: Value 0 not in range 1 to 100".
std::string explain_range(const std::string& text) {
  const auto value_at = text.find(": Value "), range_at = text.find(" not in range "), to_at = text.find(" to ", range_at);
  if (value_at == text.npos || range_at == text.npos || to_at == text.npos) return text;
  const std::string flag = text.substr(0, value_at), value = text.substr(value_at + 8, range_at - value_at - 8);
  const std::string least = text.substr(range_at + 14, to_at - range_at - 14), most = text.substr(to_at + 4);
  if (!is_number(value)) return fmt::format("{}: '{}' is not a number", flag, value);
  if (value.find_first_not_of("+-0123456789") != value.npos && least.find('.') == least.npos)
    return fmt::format("{}: '{}' is not a whole number", flag, value);
  return fmt::format("{}: {} is not between {} and {}", flag, value, least, most);
}

// CLI11's "Could not convert: --steps = abc".
std::string explain_conversion(const std::string& text) {
  constexpr std::string_view before = "Could not convert: ";
  const auto equals = text.find(" = ");
  if (!text.starts_with(before) || equals == text.npos) return text;
  const std::string flag = text.substr(before.size(), equals - before.size()), value = text.substr(equals + 3);
  return fmt::format("{}: '{}' is not a {}number", flag, value, is_number(value) ? "whole " : "");
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (const auto at = text.find(from); at != text.npos) text.replace(at, from.size(), to);
  return text;
}

}  // namespace

std::string unknown_command(const std::vector<std::string>& typed, const CLI::App& app, const CommandLine& line) {
  const bool named = !typed.empty() && !typed[0].starts_with('-');
  return named && line.commands.size() == 1 ? no_such_command(typed[0], app) : std::string();
}

std::string explain(const CLI::ParseError& error, const CLI::App& app, const CommandLine& line) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error)) return explain_leftover(app, line, text);
  if (dynamic_cast<const CLI::RequiredError*>(&error)) return explain_leftover(app, line, text);
  if (dynamic_cast<const CLI::ValidationError*>(&error)) return explain_range(text);
  if (dynamic_cast<const CLI::ConversionError*>(&error)) return explain_conversion(text);
  if (dynamic_cast<const CLI::ExcludesError*>(&error)) return replaced(text, " excludes ", " cannot go with ");
  if (dynamic_cast<const CLI::RequiresError*>(&error)) return replaced(text, " requires ", " needs ");
  if (const auto at = text.find(": 1 required "); at != text.npos && text.ends_with(" missing"))
    return fmt::format("{} needs a value", text.substr(0, at));
  return text;
}

int usage_error(const std::string& text, const CommandLine& line) {
  std::string called = "ppengine";
  for (std::size_t i = 1; i < line.commands.size(); ++i) called += " " + line.commands[i]->get_name();
  print_note("ppengine: {}\n  '{} --help' says more\n", printable(text), called);
  return static_cast<int>(ExitCode::usage);
}

void warn_of_unknown_variables(const CLI::App& app) {
  const auto me = comm::detect_ranks();
  if (me && (me->source == "ppengine" || me->rank != 0)) return;  // one warning is enough
  // Read elsewhere: base/environment, comm, and what the launcher hands to ranks.
  std::set<std::string> known{"PPENGINE_CONFIG",       "PPENGINE_ONEDNN", "PPENGINE_CACHE",
                              "PPENGINE_NCCL",         "PPENGINE_RCCL",   "PPENGINE_SHIPPED_KERNELS",
                              "PPENGINE_STANDIN_GPUS", "PPENGINE_SECRET", "PPENGINE_SECRET_FILE"};
  const auto add = [&](const CLI::App& command) {
    for (const CLI::Option* option : command.get_options())
      for (const std::string& name : option->get_lnames()) known.insert(environment_name(name));
  };
  add(app);
  for (const CLI::App* command : commands_below(app)) add(*command);
  for (char** variable = environ; *variable; ++variable) {
    const std::string text = *variable, name = text.substr(0, text.find('='));
    constexpr std::array launcher{"RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "MASTER", "RESTART", "RESTART_FROM", "LISTENER"};
    const bool ours = name.starts_with("PPENGINE_");
    if (!ours || known.contains(name) || std::ranges::find(launcher, name.substr(9)) != launcher.end()) continue;
    const std::string meant = nearest(name, {known.begin(), known.end()});
    log::warning(fmt::format("the environment variable {} is no flag of any command and is not used{}", name,
                             meant.empty() ? "" : fmt::format("; did you mean {}?", meant)));
  }
}

}  // namespace ppengine::cli
