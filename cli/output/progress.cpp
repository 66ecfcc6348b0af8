// The progress line.
#include "output/progress.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <cmath>

#include <ppengine/base/log.hpp>

#include "output/results.hpp"
#include "output/terminal.hpp"

namespace ppengine::cli {

Progress::Progress()
    : terminal_(is_terminal(STDERR_FILENO)), silent_(log::level() == log::Level::error || log::level() == log::Level::off) {}
Progress::~Progress() { finish(); }

void Progress::finish() {
  if (dirty_) print_note("\n");
  dirty_ = false;
}

void Progress::clear() {
  if (dirty_) print_note("\r\033[K");
  dirty_ = false;
}

void Progress::show(const std::string& text, bool last) {
  if (silent_) return;
  const auto now = std::chrono::steady_clock::now();
  const auto pause = std::chrono::milliseconds(terminal_ ? 100 : 5000);
  if (!last && now - shown_ < pause) return;
  shown_ = now;
  if (terminal_) {
    clear();
    print_note("{}", text);
    std::fflush(stderr);
    dirty_ = true;
  } else {
    print_note("{}\n", text);
  }
}

void Progress::note(const std::string& text) {
  if (silent_) return;
  clear();
  print_note("{}\n", text);
}

std::string duration_text(double seconds) {
  const auto total = static_cast<long>(std::lround(std::max(0.0, seconds)));
  if (total >= 3600) return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{}:{:02}", total / 60, total % 60);
}

}  // namespace ppengine::cli
