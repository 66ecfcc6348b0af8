// Flags that come from the environment (PPENGINE_SEQ_LEN for --seq-len) and from the TOML file given by --config.
// They reach the parser as if they had been typed: what is typed wins over the environment, the environment over the
// file, and that over what the checkpoint given by --resume was made with.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace ppengine::cli {

struct Setting {
  std::string flag;    // "--seq-len"
  std::string origin;  // "PPENGINE_SEQ_LEN" or "run.toml:3"
};

struct CommandLine {
  std::vector<std::string> arguments;  // typed ones, and the added ones behind the command that they belong to
  std::vector<Setting> added;
  std::string repeated;             // a flag with one value that was typed twice
  std::vector<CLI::App*> commands;  // the application, the command, the command below it
};

// Throws FileError for a file that is missing, broken, or names what no command has.
CommandLine complete_command_line(CLI::App& app, const std::vector<std::string>& typed);

// "--seq-len" -> "PPENGINE_SEQ_LEN"
std::string environment_name(const std::string& flag);

// Where a flag named in the text of an error came from, when it was not typed; otherwise empty.
std::string origin_in(const std::string& text, const CommandLine& line);

}  // namespace ppengine::cli
