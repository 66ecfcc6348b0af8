// A PTX text cut into statements.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ppengine::ptx {

struct Statement {
  enum class Kind : std::uint8_t {
    plain,
    label,
    header,
    declaration
  };  // header: of a function whose body follows; declaration: of one without
  Kind kind;
  std::string text;    // without comments and the closing ';' or ':'
  std::uint32_t line;  // where it begins, from 1
};

std::vector<Statement> statements_of(std::string_view text);

// Cut at commas outside of brackets, spaces trimmed.
std::vector<std::string> split_list(std::string_view list);
std::string trimmed(std::string_view text);

}  // namespace ppengine::ptx
