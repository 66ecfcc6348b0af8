// What to say about a command line that cannot be carried out, and about settings that nobody reads.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include "flags/settings.hpp"

namespace ppengine::cli {

// The error in words that name the flag, what is wrong with its value, and what to give.
std::string explain(const CLI::ParseError& error, const CLI::App& app, const CommandLine& line);

// What to say where the first word is no command, also where --help stands behind it; empty otherwise.
std::string unknown_command(const std::vector<std::string>& typed, const CLI::App& app, const CommandLine& line);

// Prints an error and where to read on; returns the exit code.
int usage_error(const std::string& text, const CommandLine& line);

// Warns of variables that begin with PPENGINE_ and are no flag of any command: they are mostly misspelt.
void warn_of_unknown_variables(const CLI::App& app);

}  // namespace ppengine::cli
