// Printing results.
#include "output/results.hpp"

#include <ppengine/base/results.hpp>

namespace ppengine::cli {
namespace {

// Before any library's constructor, which might print.
void keep_results_apart(int, char**, char**) { results::keep_apart(); }
[[gnu::section(".preinit_array"), gnu::used]] void (*const before_libraries)(int, char**, char**) = keep_results_apart;

}  // namespace

std::FILE* results_file() {
  static std::FILE* const file = results::descriptor() == fileno(stdout) ? stdout : fdopen(results::descriptor(), "w");
  return file ? file : stdout;
}

}  // namespace ppengine::cli
