// The layout of --help.
#include "help.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include <ppengine/base/results.hpp>

#include "output/terminal.hpp"

namespace ppengine::cli {
namespace {

constexpr std::size_t name_column = 30;

std::string wrapped(const std::string& text, std::size_t indent, std::size_t width) {
  std::string out, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && indent + line.size() + 1 + word.size() > width) {
      out += line + "\n" + std::string(indent, ' ');
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + line;
}

class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string value = value_name(*option);
    return (value.empty() ? "" : " " + value) + (option->get_required() ? " (required)" : "");
  }

  std::string make_option(const CLI::Option* option, bool positional) const override {
    return entry(make_option_name(option, positional) + make_option_opts(option), make_option_desc(option));
  }

  std::string make_subcommand(const CLI::App* command) const override { return entry(command->get_name(), command->get_description()); }

 private:
  static std::string entry(const std::string& name, const std::string& description) {
    const auto width = static_cast<std::size_t>(std::clamp(terminal_width(results::descriptor(), 120), 60, 120));
    std::string out = "  " + name;
    if (description.empty()) return out + "\n";
    out += out.size() + 1 < name_column ? std::string(name_column - out.size(), ' ') : "\n" + std::string(name_column, ' ');
    return out + wrapped(description, name_column, width) + "\n";
  }
};

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); });
}

std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

void describe(const CLI::App& command, const std::string& name, std::string& out) {
  out += fmt::format(".SS {}\n{}\n", roff(name), roff(command.get_description()));
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_group().empty() || option == command.get_help_ptr()) continue;
    std::vector<std::string> names;
    for (const std::string& one : option->get_snames()) names.push_back("-" + one);
    for (const std::string& one : option->get_lnames()) names.push_back("--" + one);
    if (names.empty()) names.push_back(option->get_name());
    const std::string value = value_name(*option);
    out += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(fmt::format("{}", fmt::join(names, ", "))),
                       value.empty() ? "" : " \\fI" + roff(value) + "\\fR", roff(option->get_description()));
  }
  const std::string& footer = command.get_footer();
  if (const auto examples = footer.find("Examples:\n"); examples != footer.npos) {
    out += ".PP\n.nf\n";
    std::istringstream lines(footer.substr(examples + 10, footer.find("\n\n", examples) - examples - 10));
    for (std::string line; std::getline(lines, line);)
      if (!line.empty()) out += roff(line) + "\n";
    out += ".fi\n";
  }
  for (const CLI::App* below : commands_of(command)) describe(*below, name + " " + below->get_name(), out);
}

}  // namespace

std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const auto begin = type.find(":{");
  if (begin == type.npos || !type.ends_with('}')) return {};
  return CLI::detail::split(type.substr(begin + 2, type.size() - begin - 3), ',');
}

std::string value_name(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  if (const auto choices = choices_of(option); !choices.empty()) return fmt::format("{}", fmt::join(choices, "|"));
  std::string type = option.get_type_name();
  for (const char* kind : {"INT", "UINT", "FLOAT", "TEXT"})  // limits behind a colon are for error messages
    if (type == kind || type.starts_with(std::string(kind) + ":") || type.starts_with("[" + std::string(kind))) type = kind;
  if (const auto limits = type.find(":INT in ["); limits != type.npos) type.resize(limits);
  return type == "INT" || type == "UINT" ? "N" : type == "FLOAT" ? "NUMBER" : type;
}

void use_help_format(CLI::App& app) {
  app.formatter(std::make_shared<HelpFormatter>());
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) use_help_format(*command);
}

std::vector<std::string> translate_help(const std::vector<std::string>& typed) {
  if (typed.empty() || typed[0] != "help" || (typed.size() > 1 && typed[1].starts_with('-'))) return typed;
  std::vector<std::string> arguments(typed.begin() + 1, typed.end());
  arguments.emplace_back("--help");
  return arguments;
}

std::string man_page(const CLI::App& app, const std::string& version) {
  std::string out = fmt::format(".TH PPENGINE 1 \"\" \"ppengine {}\"\n.SH NAME\nppengine \\- {}\n", version,
                                "pipeline\\-parallel training and inference of neural networks");
  out += ".SH SYNOPSIS\n.B ppengine\n.I COMMAND\n[flags]\n.SH DESCRIPTION\n" + roff(app.get_description()) + "\n";
  out += ".SH COMMANDS\n";
  for (const CLI::App* command : commands_of(app)) describe(*command, command->get_name(), out);
  out +=
      ".SH ENVIRONMENT\nEvery flag can be set in the environment (\\-\\-seq\\-len as PPENGINE_SEQ_LEN) or in the TOML file given by "
      "\\-\\-config; typed flags come first, then the environment, then the file.\n"
      ".SH EXIT STATUS\n0 fine, 1 the run failed, 2 wrong usage or input file, 3 no such device, 4 a peer was lost, 130 interrupted.\n";
  return out;
}

}  // namespace ppengine::cli
