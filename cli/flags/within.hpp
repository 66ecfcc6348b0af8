// A flag's value as a number between two limits. CLI11's own Range lets NaN through.
#pragma once

#include <CLI/CLI.hpp>
#include <fmt/core.h>

namespace ppengine::cli {

inline CLI::Validator within(double least, double most) {
  return CLI::Validator(
      [=](const std::string& text) {
        double value = 0;
        const bool is_number = CLI::detail::lexical_cast(text, value);
        return is_number && value >= least && value <= most ? std::string()
                                                            : fmt::format("'{}' is not a number from {} to {}", text, least, most);
      },
      fmt::format("{} to {}", least, most));
}

}  // namespace ppengine::cli
