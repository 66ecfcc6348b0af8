// Regular expressions, by PCRE2.
#include <ppengine/base/pattern.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8  // NOLINT(readability-identifier-naming): what PCRE2 looks for
#include <fmt/core.h>
#include <pcre2.h>

#include <ppengine/base/error.hpp>

namespace ppengine {
namespace {

constexpr std::uint32_t most_steps = 1'000'000;  // milliseconds; names take tens

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct Pattern::Code {
  Code(std::string where, std::string what) : place(std::move(where)), text(std::move(what)) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
    if (!code) throw ConfigError(fmt::format("{}: '{}' is not a regular expression: {} (at {})", place, text, message_of(error), offset));
    pcre2_set_match_limit(context.get(), most_steps);
  }

  bool matches(std::string_view subject, std::uint32_t options) const {
    const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> found(
        pcre2_match_data_create_from_pattern(code.get(), nullptr), pcre2_match_data_free);
    const int result =
        pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), 0, options, found.get(), context.get());
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
      throw ConfigError(fmt::format("{}: '{}' cannot be matched: {}; write it in a simpler way", place, text, message_of(result)));
    return result >= 0;
  }

  std::string place, text;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code{nullptr, pcre2_code_free};
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context{pcre2_match_context_create(nullptr),
                                                                                    pcre2_match_context_free};
};

Pattern::Pattern(std::string place, std::string text) : code_(std::make_shared<const Code>(std::move(place), std::move(text))) {}
bool Pattern::found_in(std::string_view text) const { return code_->matches(text, 0); }
bool Pattern::fits(std::string_view text) const { return code_->matches(text, PCRE2_ANCHORED | PCRE2_ENDANCHORED); }

}  // namespace ppengine
