// What a training run was made with: written into its checkpoints as the flags' names and values, and restored by --resume.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <map>
#include <string>

namespace ppengine::cli {

using Settings = std::map<std::string, std::string>;  // by the flag's name without dashes

// Values, given or by default, of all flags that decide what a run computes. Not those of where it runs (ranks, schedule, devices), where
// it saves and what it shows: these may change when it goes on.
Settings settings_of(CLI::App& command);

// Those of a checkpoint that are not given and are not what they would be anyway.
Settings settings_to_restore(CLI::App& command, const std::string& checkpoint, const std::function<bool(const CLI::Option&)>& given);

// Warns, once per run, of flags that differ from what the checkpoint was made with.
void warn_of_differences(CLI::App& command, const std::string& checkpoint);

}  // namespace ppengine::cli
