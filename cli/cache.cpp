// ppengine cache: where compiled kernels and measured choices are kept between runs, and how to be rid of them.
#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <vector>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/error.hpp>

#include "commands.hpp"
#include "output/plural.hpp"
#include "output/results.hpp"

namespace ppengine::cli {
namespace {

namespace fs = std::filesystem;

// Kernels, one folder per --isa, and who computes which product. Others beside them (the toolchain of a source tree) are not of the
// program's making.
bool is_ours(const std::string& folder) { return folder == "kernels" || folder.starts_with("kernels-") || folder == "products"; }

std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator at(environment::cache_folder(), ignored), end; at != end; at.increment(ignored))
    if (is_ours(at->path().filename().string())) found.push_back(at->path());
  return found;
}

struct Contents {
  std::int64_t files = 0;
  std::uintmax_t bytes = 0;
};

Contents contents() {
  Contents found;
  std::error_code ignored;
  for (const fs::path& folder : folders())
    for (fs::recursive_directory_iterator at(folder, ignored), end; at != end; at.increment(ignored))
      if (at->is_regular_file(ignored)) ++found.files, found.bytes += at->file_size(ignored);
  return found;
}

void show(bool json) {
  const Contents now = contents();
  if (json)
    return print_result("{}\n", nlohmann::json{{"folder", environment::cache_folder()}, {"files", now.files}, {"bytes", now.bytes}}.dump());
  print_result("{}: {}, {:.1f} MiB of compiled kernels and measured choices{}\n", environment::cache_folder(), plural(now.files, "file"),
               double(now.bytes) / (1 << 20), environment::kernel_cache_enabled() ? "" : " (not used: SYCL_CACHE_PERSISTENT is 0)");
}

void clear() {
  const Contents before = contents();
  for (const fs::path& folder : folders()) {
    std::error_code failed;
    fs::remove_all(folder, failed);
    if (failed) throw Error(fmt::format("{}: cannot be removed: {}", folder.string(), failed.message()));
  }
  print_result("{}: removed {}, {:.1f} MiB\n", environment::cache_folder(), plural(before.files, "file"), double(before.bytes) / (1 << 20));
}

}  // namespace

void add_cache(CLI::App& app) {
  auto* command =
      app.add_subcommand("cache", "Where compiled kernels and measured choices are kept between runs; 'cache clear' removes them");
  auto json = std::make_shared<bool>(false);
  command->add_flag("--json", *json, "Print one JSON object");
  auto* clearing = command->add_subcommand("clear", "Remove them; the next run compiles and measures what it needs");
  command->footer("Examples:\n  ppengine cache\n  ppengine cache clear\n  PPENGINE_CACHE=/tmp/kernels ppengine cache");
  clearing->footer("Examples:\n  ppengine cache clear");
  command->require_subcommand(0, 1);
  command->callback([command, json] { command->get_subcommands().empty() ? show(*json) : clear(); });
}

}  // namespace ppengine::cli
