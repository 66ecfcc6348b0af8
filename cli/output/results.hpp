// Printing results. C's stdout and std::cout are not for them: those belong to whatever libraries print, and lead to stderr.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>

namespace ppengine::cli {

std::FILE* results_file();

template <class... Arguments>
void print_result(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  fmt::print(results_file(), format, std::forward<Arguments>(arguments)...);
}

// A line of results, passed on at once. One that does not arrive ends no run: results_are_lost() tells.
void print_result_line(const std::string& line);
// Whether stdout is full, or a pipe that nobody reads any more.
bool results_are_lost();
bool reader_is_gone();  // of that pipe
bool notes_are_lost();  // the same for stderr

// What is said on stderr. Where that is closed or full it is lost: no reason to fail.
template <class... Arguments>
void print_note(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  std::fputs(fmt::format(format, std::forward<Arguments>(arguments)...).c_str(), stderr);
}

}  // namespace ppengine::cli
