// The ppengine command: one subcommand per file; errors become one line on stderr and the documented exit code.
#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>

#include "commands.hpp"

namespace {

int run(int argc, char** argv) {
  CLI::App app{"ppengine trains and runs neural networks split into pipeline stages over several devices."};
  app.name("ppengine");
  app.require_subcommand(1);
  std::string log_level = "warning";
  app.add_option("--log-level", log_level, "error, warning, info, debug or off")->envname("PPENGINE_LOG_LEVEL");
  app.parse_complete_callback([&] { ppengine::log::set_level(ppengine::log::parse_level(log_level)); });
  ppengine::cli::add_plan(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "ppengine: {}\n", e.what());
    return static_cast<int>(ppengine::ExitCode::usage);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const ppengine::Error& e) {
    fmt::print(stderr, "ppengine: {}\n", e.what());
    return static_cast<int>(e.exit_code());
  } catch (const std::exception& e) {
    fmt::print(stderr, "ppengine: {}\n", e.what());
    return static_cast<int>(ppengine::ExitCode::failed);
  }
}
