// Completion scripts for bash and zsh, made from the commands and their flags.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace ppengine::cli {

std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);

}  // namespace ppengine::cli
