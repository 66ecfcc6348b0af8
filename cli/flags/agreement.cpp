// Settings that ranks started apart must agree on.
#include "flags/agreement.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include <ppengine/base/error.hpp>
#include <ppengine/base/hash.hpp>

namespace ppengine::cli {
namespace {

namespace fs = std::filesystem;

// Where a rank runs and what it prints is its own affair.
bool may_differ(const std::string& flag) {
  constexpr std::array own{"help",     "device", "timeout", "launch", "hosts",    "remote-shell", "restarts",
                           "progress", "no-pin", "json",    "trace",  "timeline", "dashboard"};
  return std::ranges::find(own, flag) != own.end();
}

// Flags whose value is a file or a folder, which may lie elsewhere on another machine.
bool names_file(const std::string& flag) {
  constexpr std::array files{"model", "plan", "data", "resume", "eval-data", "prompts"};
  return std::ranges::find(files, flag) != files.end();
}

std::uint64_t hash_of_file(const fs::path& path) {
  std::string beginning(std::size_t{1} << 16, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  beginning.resize(static_cast<std::size_t>(file.gcount()));
  std::error_code ignored;
  return hash_text(fmt::format("{} ", fs::file_size(path, ignored))) ^ hash_text(beginning);
}

}  // namespace

std::string fingerprint(const std::string& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return fmt::format("{:016x}", hash_of_file(path));
  if (!fs::is_directory(path, ignored)) return {};
  std::uint64_t sum = 0;  // whatever the order of the files
  for (const auto& entry : fs::directory_iterator(path, ignored))
    if (entry.is_regular_file(ignored)) sum += mix(hash_text(entry.path().filename().string()) ^ hash_of_file(entry.path()));
  return fmt::format("{:016x}", sum);
}

void check_same_settings(const CLI::App& command, comm::Communicator& world) {
  nlohmann::json mine{{"command", command.get_name()}};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty() || may_differ(option->get_lnames()[0])) continue;
    const std::string& flag = option->get_lnames()[0];
    std::string value = option->count() > 0 ? fmt::format("{}", fmt::join(option->results(), ",")) : std::string("not given");
    if (const std::string print = names_file(flag) ? fingerprint(value) : std::string(); !print.empty())
      value = fmt::format("a file or folder with contents {}", print);
    mine["--" + flag] = value;
  }
  const auto all = world.all_gather_bytes(mine.dump());
  const nlohmann::json first = nlohmann::json::parse(all[0]);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const nlohmann::json theirs = nlohmann::json::parse(all[rank]);
    for (const auto& [name, value] : first.items())
      if (const std::string other = theirs.value(name, "unknown"); other != value.get<std::string>())
        throw ConfigError(fmt::format("ranks were started with different settings: {} is {} on rank 0 and {} on rank {}; start all alike",
                                      name, value.get<std::string>(), other, world.world_rank(static_cast<int>(rank))));
  }
}

}  // namespace ppengine::cli
