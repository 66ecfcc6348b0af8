// What the user may have meant.
#pragma once

#include <string>
#include <vector>

namespace ppengine::cli {

// The candidate nearest to a mistyped word, or an empty text when none is near.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace ppengine::cli
