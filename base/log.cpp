// Logging with levels, to stderr.
#include <ppengine/base/log.hpp>

#include <fmt/core.h>

#include <atomic>
#include <cstdio>
#include <mutex>

#include <ppengine/base/error.hpp>
#include <ppengine/base/printable.hpp>

namespace ppengine::log {
namespace {

std::atomic<Level> current_level{Level::warning};
std::mutex sink_mutex;
Sink current_sink;  // empty: stderr

constexpr const char* names[] = {"error", "warning", "info", "debug", "off"};

}  // namespace

void set_level(Level value) { current_level = value; }
Level level() { return current_level; }

Level parse_level(std::string_view name) {
  for (int i = 0; i < 5; ++i)
    if (name == names[i]) return static_cast<Level>(i);
  throw ConfigError(fmt::format("unknown log level '{}': use error, warning, info, debug or off", name));
}

void set_sink(Sink sink) {
  std::lock_guard lock(sink_mutex);
  current_sink = std::move(sink);
}

void write(Level severity, std::string_view text) {
  const Level shown = current_level;
  if (shown == Level::off || severity > shown) return;
  std::lock_guard lock(sink_mutex);
  if (current_sink) return current_sink(severity, text);
  // Not fmt::print: it throws when stderr is closed, and a line of the log must never end a run.
  const std::string prefix = severity <= Level::warning ? fmt::format("{}: ", names[static_cast<int>(severity)]) : "";
  std::fputs(fmt::format("ppengine: {}{}\n", prefix, printable(text)).c_str(), stderr);
}

}  // namespace ppengine::log
