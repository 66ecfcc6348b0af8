// Printing results.
#include "output/results.hpp"

#include <poll.h>

#include <ppengine/base/results.hpp>

namespace ppengine::cli {
namespace {

// Before any library's constructor, which might print.
void keep_results_apart(int, char**, char**) { results::keep_apart(); }
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**, char**) = keep_results_apart;

bool has_no_reader(std::FILE* file) {
  pollfd where{.fd = fileno(file), .events = 0, .revents = 0};
  return poll(&where, 1, 0) == 1 && (where.revents & POLLERR) != 0;
}
bool is_lost(std::FILE* file) { return std::ferror(file) != 0 || has_no_reader(file); }

}  // namespace

std::FILE* results_file() {
  static std::FILE* const file = results::descriptor() == fileno(stdout) ? stdout : fdopen(results::descriptor(), "w");
  return file ? file : stdout;
}

void print_result_line(const std::string& line) {
  std::fputs((line + "\n").c_str(), results_file());
  std::fflush(results_file());
}

bool results_are_lost() { return is_lost(results_file()); }
bool reader_is_gone() { return has_no_reader(results_file()); }
bool notes_are_lost() { return is_lost(stderr); }

}  // namespace ppengine::cli
