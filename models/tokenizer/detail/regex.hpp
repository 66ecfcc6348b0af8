// Regular expressions of tokenizer.json. Hugging Face matches them with Oniguruma; here they are translated to PCRE2, and
// code points that the two see differently (other versions of Unicode) are replaced by stand-ins while matching.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ppengine::models::tokenizer {

struct Match {
  std::size_t begin;
  std::size_t end;
};

// An Oniguruma pattern as one for PCRE2 (UTF, UCP, multiline). ConfigError names what has no counterpart.
std::string translate_pattern(std::string_view pattern);

class Regex {
 public:
  // ConfigError for a pattern that cannot be used; the text says why.
  explicit Regex(const std::string& pattern);
  static Regex literal(const std::string& text);

  // All matches in valid UTF-8, found one after the other as Oniguruma's find_iter does.
  void find_all(std::string_view text, std::vector<Match>& matches) const;

 private:
  Regex() = default;
  struct Code;
  std::shared_ptr<const Code> code_;
  std::string literal_;  // a plain string is searched directly
};

}  // namespace ppengine::models::tokenizer
