// What ranks that were started apart must have in common: the flags of the command, and what is in the files that they name.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

#include <ppengine/comm/communicator.hpp>

namespace ppengine::cli {

// All ranks call it. ConfigError names the flag and both ranks where one differs.
void check_same_settings(const CLI::App& command, comm::Communicator& world);

// A file's size and beginning, or those of all files of a folder; empty when it is neither. Files are not read to their ends: a model
// may have hundreds of gigabytes.
std::string fingerprint(const std::string& path);

}  // namespace ppengine::cli
