// Where results go: the process's stdout. A program can keep it on a descriptor of its own, so that what libraries print to stdout never
// ends up between results.
#pragma once

#include <filesystem>

namespace ppengine::results {

// 1, or the copy that keep_apart() has made.
int descriptor();

// From now on results go to a copy of descriptor 1, which itself becomes another stderr. System calls alone: this can run before the
// constructors of libraries.
void keep_apart() noexcept;

// The path to open for this one: /dev/stdout and its other names stand for the results, wherever these go.
std::filesystem::path opened_as(const std::filesystem::path& path);

}  // namespace ppengine::results
