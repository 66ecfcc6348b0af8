// Numbers with their noun: "1 rank", "2 ranks".
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <string>

namespace ppengine::cli {

inline std::string plural(std::int64_t count, const std::string& noun, const std::string& several = {}) {
  return fmt::format("{} {}", count, count == 1 ? noun : several.empty() ? noun + "s" : several);
}

}  // namespace ppengine::cli
