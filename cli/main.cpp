// The ppengine command: one subcommand per file; errors become one line on stderr and the documented exit code.
#include <fmt/core.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <new>
#include <sstream>
#include <system_error>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/base/printable.hpp>
#include <ppengine/base/version.hpp>
#include <ppengine/comm/launch/stop_signals.hpp>
#include <ppengine/comm/versions.hpp>
#include <ppengine/ops/device/versions.hpp>

#include "commands.hpp"
#include "completion.hpp"
#include "flags/settings.hpp"
#include "flags/usage.hpp"
#include "help.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

std::string version_text() {
  return fmt::format("ppengine {}\ncommit   {}\ncompiler {}\nSYCL     {}\noneDNN   {}\noneCCL   {}", version(), commit(), compiler(),
                     ops::sycl_version(), ops::onednn_version(), comm::oneccl_version());
}

struct Verbosity {
  std::string level = "warning";
  int more = 0;
  bool quiet = false;

  void apply() const {
    log::Level chosen = log::parse_level(level);
    if (more == 1) chosen = log::Level::info;
    if (more > 1) chosen = log::Level::debug;
    if (quiet) chosen = log::Level::error;
    log::set_level(chosen);
  }
};

void add_flags(CLI::App& app, Verbosity& verbosity) {
  app.set_version_flag("--version", version_text, "Version, commit, compiler, and the libraries in use");
  app.add_option("--config", "TOML file with flags: at its top those of the command, under [command] those of that command")
      ->type_name("FILE");
  auto* level = app.add_option("--log-level", verbosity.level, "How much to say (default: warning)")
                    ->check(CLI::IsMember({"error", "warning", "info", "debug", "off"}));
  auto* more = app.add_flag("-v,--verbose", verbosity.more, "Say more; twice for everything")->excludes(level);
  app.add_option("--isa", "Best vector instructions to use on CPUs, ours and oneDNN's (default: what the CPU has)")
      ->check(CLI::IsMember({"sse4", "avx2", "avx512", "native"}))
      ->each([](const std::string& isa) { setenv("PPENGINE_ISA", isa.c_str(), 1); });  // read by the library, inherited by other ranks
  app.add_flag("-q,--quiet", verbosity.quiet, "Say nothing but errors")->excludes(level)->excludes(more);
}

// Every help text ends with what holds for all commands.
void add_footers(CLI::App& app) {
  for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
    const std::string own = command->get_footer();
    command->footer(own + (own.empty() ? "" : "\n\n") +
                    "Every flag can also be set in the environment (--seq-len as PPENGINE_SEQ_LEN) or in a TOML file\n"
                    "(--config FILE). For all commands: --config, --isa, --log-level, -v, -q; see ppengine --help.");
    add_footers(*command);
  }
}

// Help as text comes from translate_help(); here is what is made of it.
void add_help(CLI::App& app) {
  auto* help = app.add_subcommand("help", "Help for a command: 'ppengine help train'; --man prints the man page");
  auto man = std::make_shared<bool>(false);
  help->add_flag("--man", *man, "The whole help as a man page (roff)");
  help->footer("Examples:\n  ppengine help bench train\n  ppengine help --man | man -l -");
  help->callback([&app, man] { print_result("{}", *man ? man_page(app, version()) : app.help()); });
  auto* completion = app.add_subcommand("completion", "Completion of commands and flags for a shell");
  auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "bash or zsh")->required()->check(CLI::IsMember({"bash", "zsh"}));
  completion->footer("Examples:\n  source <(ppengine completion bash)\n  ppengine completion zsh > ~/.zfunc/_ppengine");
  completion->callback([&app, shell] { print_result("{}", *shell == "bash" ? bash_completion(app) : zsh_completion(app)); });
}

int run(int argc, char** argv) {
  CLI::App app{"ppengine trains and runs neural networks split into pipeline stages over several devices."};
  app.name("ppengine");
  app.require_subcommand(1);
  app.fallthrough();  // flags of the application can stand behind the command too
  app.footer(
      "Examples:\n"
      "  ppengine devices\n"
      "  ppengine plan --schedule 1f1b --ranks 4 --stages 4 --microbatches 8 --format text\n\n"
      "'ppengine COMMAND --help' shows a command's flags. Every flag can also be set in the environment (--seq-len as\n"
      "PPENGINE_SEQ_LEN) or in the TOML file; typed flags come first, then the environment, then the file.\n"
      "Exit codes: 0 fine, 1 the run failed, 2 wrong usage or input file, 3 no such device, 4 a peer was lost,\n130 interrupted.");
  Verbosity verbosity;
  add_flags(app, verbosity);
  app.parse_complete_callback([&] {
    verbosity.apply();
    warn_of_unknown_variables(app);
  });
  add_train(app);
  add_eval(app);
  add_generate(app);
  add_merge(app);
  add_serve(app);
  add_inspect(app);
  add_plan(app);
  add_bench(app);
  add_devices(app);
  add_cache(app);
  add_help(app);
  add_footers(app);
  use_help_format(app);
  if (argc < 2) {
    print_note("{}", app.help());
    return static_cast<int>(ExitCode::usage);
  }

  const std::vector<std::string> typed = translate_help(std::vector<std::string>(argv + 1, argv + argc));
  const CommandLine line = complete_command_line(app, typed);
  if (const std::string wrong = unknown_command(typed, app, line); !wrong.empty()) return usage_error(wrong, line);
  if (!line.repeated.empty()) return usage_error(fmt::format("{} was given more than once; give it once", line.repeated), line);
  std::vector<std::string> arguments(line.arguments.rbegin(), line.arguments.rend());  // CLI11 wants the last one first
  try {
    app.parse(arguments);
  } catch (const CLI::Success& e) {
    std::ostringstream text;
    const int code = app.exit(e, text, std::cerr);
    print_result("{}", text.str());
    return code;
  } catch (const CLI::RuntimeError& e) {  // a command that ends with a code of its own and has said why
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    const std::string text = explain(e, app, line), origin = origin_in(text, line);
    return usage_error(origin.empty() ? text : fmt::format("{}: {}", origin, text), line);
  }
  return static_cast<int>(ExitCode::ok);
}

// By default oneDNN reports every device that it cannot serve as an error. Who sets the variable reads what it says on stderr.
void quiet_onednn() {
  if (!std::getenv("DNNL_VERBOSE")) setenv("ONEDNN_VERBOSE", "none", 0);
}

int report(const char* text, ExitCode code) {
  // Not fmt::print, which throws when stderr is closed: nothing would catch that here.
  std::fputs("ppengine: ", stderr);
  std::fputs(printable(text).c_str(), stderr);
  std::fputs("\n", stderr);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace ppengine::cli

int main(int argc, char** argv) {
  using namespace ppengine;
  int code = 0;
  try {
    comm::stop_signals();  // before libraries set handlers of their own
    cli::quiet_onednn();
    // Commands that have something to save (train) or to pass on (ranks as processes) put their own in place.
    std::signal(SIGINT, [](int) { std::_Exit(static_cast<int>(ExitCode::interrupted)); });
    code = cli::run(argc, argv);
  } catch (const Error& e) {
    code = cli::report(e.what(), e.exit_code());
  } catch (const std::bad_alloc&) {
    code = cli::report("out of memory", ExitCode::failed);
  } catch (const std::system_error& e) {
    const bool limited = e.code() == std::errc::resource_unavailable_try_again;  // what pthread_create says
    code = cli::report(limited ? "no thread can be started: a limit on threads or memory is reached (ulimit -u, ulimit -v)" : e.what(),
                       ExitCode::failed);
  } catch (const std::exception& e) {
    code = cli::report(e.what(), ExitCode::failed);
  }
  // A result that did not arrive (a full disk) is a failure.
  if ((std::fflush(cli::results_file()) != 0 || std::ferror(cli::results_file()) != 0) && code == 0)
    code = cli::report("the result could not be written to stdout", ExitCode::failed);
  return code;
}
