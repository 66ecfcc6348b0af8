// ppengine inspect FILE.pt2.
#pragma once

#include <string>
#include <vector>

namespace ppengine::cli {

void inspect_program(const std::string& file, int stages, const std::vector<std::string>& split, bool json);

}  // namespace ppengine::cli
