// Regular expressions of users and of files that people hand around: Python's syntax, matched by PCRE2 within its limits, so that no
// expression and no text takes for ever or runs out of stack.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace ppengine {

class Pattern {
 public:
  // Not an expression: a ConfigError "PLACE: 'TEXT' is not a regular expression: WHY". `place` is a flag, or a file and its field.
  Pattern(std::string place, std::string text);

  bool found_in(std::string_view text) const;  // as re.search
  bool fits(std::string_view text) const;      // the whole of it, as re.fullmatch

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

}  // namespace ppengine
