// Printing results. C's stdout and std::cout are not for them: those belong to whatever libraries print, and lead to stderr.
#pragma once

#include <fmt/core.h>

#include <cstdio>

namespace ppengine::cli {

std::FILE* results_file();

template <class... Arguments>
void print_result(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::print(results_file(), format, std::forward<Arguments>(arguments)...);
}

}  // namespace ppengine::cli
