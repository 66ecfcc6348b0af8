// How help looks: names and types in a column, descriptions wrapped to the window; and the same as a man page.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace ppengine::cli {

// "N", "NUMBER", "FILE", "f32|bf16": what a flag takes, without the limits that an error names. Empty for one that takes nothing.
std::string value_name(const CLI::Option& option);
// The values of a flag that takes one of a few; empty otherwise.
std::vector<std::string> choices_of(const CLI::Option& option);

void use_help_format(CLI::App& app);

// `ppengine help train` as `ppengine train --help`. Other arguments stay as they are.
std::vector<std::string> translate_help(const std::vector<std::string>& typed);

std::string man_page(const CLI::App& app, const std::string& version);

}  // namespace ppengine::cli
