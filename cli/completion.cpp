// Completion scripts for bash and zsh.
#include "completion.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "help.hpp"

namespace ppengine::cli {
namespace {

struct Command {
  std::string name;  // "bench train"; empty: the application
  const CLI::App* app;
};

void collect(const CLI::App& app, const std::string& name, std::vector<Command>& all) {
  all.push_back({name, &app});
  for (const CLI::App* below : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    collect(*below, name.empty() ? below->get_name() : name + " " + below->get_name(), all);
}

std::vector<Command> commands_of(const CLI::App& app) {
  std::vector<Command> all;
  collect(app, "", all);
  return all;
}

// Commands below this one, and its flags with those of the application.
std::vector<std::string> words_of(const Command& command, const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::App* below : command.app->get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); }))
    words.push_back(below->get_name());
  const auto add = [&](const CLI::App& from) {
    for (const CLI::Option* option : from.get_options())
      for (const std::string& name : option->get_lnames())
        if (!option->get_group().empty()) words.push_back("--" + name);
  };
  add(*command.app);
  if (command.app != &app) add(app);
  return words;
}

bool takes_file(const CLI::Option& option) {
  const std::string value = value_name(option);
  return value.find("FILE") != value.npos || value.find("DIR") != value.npos || value == "DATA";
}

std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c == '\'' ? std::string("'\\''") : c == '[' || c == ']' || c == ':' ? std::string("\\") + c : std::string(1, c);
  return out;
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string words, choices;
  for (const Command& command : commands_of(app)) {
    words += fmt::format("    '{}') words='{}' ;;\n", command.name, fmt::join(words_of(command, app), " "));
    for (const CLI::Option* option : command.app->get_options())
      for (const std::string& name : option->get_lnames()) {
        if (const auto values = choices_of(*option); !values.empty())
          choices += fmt::format("    '{} --{}') COMPREPLY=($(compgen -W '{}' -- \"$current\")); return ;;\n", command.name, name,
                                 fmt::join(values, " "));
        else if (takes_file(*option))
          choices += fmt::format("    '{} --{}') COMPREPLY=($(compgen -f -- \"$current\")); return ;;\n", command.name, name);
        else if (!value_name(*option).empty())
          choices += fmt::format("    '{} --{}') return ;;\n", command.name, name);
      }
  }
  std::string commands;
  for (const Command& command : commands_of(app)) commands += fmt::format("    '{}') called=$next ;;\n", command.name);
  return "# Completion of ppengine for bash: made by 'ppengine completion bash'.\n"
         "_ppengine() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} called='' next words i\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    next=${called:+$called }${COMP_WORDS[i]}\n"
         "    case $next in\n" +
         commands +
         "    esac\n"
         "  done\n"
         "  case \"$called $before\" in\n" +
         choices +
         "  esac\n"
         "  case $called in\n" +
         words +
         "  esac\n"
         "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
         "  [[ ${#COMPREPLY[@]} -gt 0 || $current == -* ]] || COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "}\n"
         "complete -o filenames -F _ppengine ppengine\n";
}

std::string zsh_completion(const CLI::App& app) {
  std::string cases;
  for (const Command& command : commands_of(app)) {
    std::string specs;
    for (const CLI::Option* option : command.app->get_options())
      for (const std::string& name : option->get_lnames()) {
        if (option->get_group().empty()) continue;
        const std::string value = value_name(*option);
        const auto values = choices_of(*option);
        const std::string action = !values.empty() ? fmt::format("({})", fmt::join(values, " ")) : takes_file(*option) ? "_files" : " ";
        specs += fmt::format(" \\\n        '--{}[{}]{}'", name, quoted(option->get_description()),
                             value.empty() ? "" : fmt::format(":{}:{}", quoted(value), action));
      }
    std::vector<std::string> below;
    for (const CLI::App* one : command.app->get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); }))
      below.push_back(fmt::format("{}", one->get_name()));
    specs += below.empty() ? " \\\n        '*:file:_files'" : fmt::format(" \\\n        '*:command:({})'", fmt::join(below, " "));
    cases += fmt::format("    '{}') _arguments{} ;;\n", command.name, specs);
  }
  std::string commands;
  for (const Command& command : commands_of(app)) commands += fmt::format("      '{}') called=$next ;;\n", command.name);
  return "#compdef ppengine\n"
         "# Completion of ppengine for zsh: made by 'ppengine completion zsh'.\n"
         "_ppengine() {\n"
         "  local called='' next word\n"
         "  for word in ${words[2,CURRENT-1]}; do\n"
         "    next=${called:+$called }$word\n"
         "    case $next in\n" +
         commands +
         "    esac\n"
         "  done\n"
         "  case $called in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_ppengine \"$@\"\n";
}

}  // namespace ppengine::cli
