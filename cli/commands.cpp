// Commands that are not there yet.
#include "commands.hpp"

namespace ppengine::cli {

void add_plan(CLI::App&) {}

}  // namespace ppengine::cli
