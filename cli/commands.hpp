// The commands: each registers its flags under the application and runs when it was chosen. One file per command.
#pragma once

#include <CLI/CLI.hpp>

namespace ppengine::cli {

void add_plan(CLI::App& app);

}  // namespace ppengine::cli
