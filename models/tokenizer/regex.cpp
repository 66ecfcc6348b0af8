// Matching with PCRE2: UTF-8, Unicode properties, just-in-time compiled where the machine allows it.
#include <ppengine/models/tokenizer/detail/regex.hpp>

#define PCRE2_CODE_UNIT_WIDTH 8  // NOLINT(readability-identifier-naming): what PCRE2 looks for
#include <fmt/core.h>
#include <pcre2.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include <ppengine/base/error.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {
namespace {

struct StandIn {
  std::uint32_t first, last, instead;
};
constexpr StandIn stand_ins[] = {
#include <ppengine/models/tokenizer/tables/stand_ins.inc>
};

char32_t stand_in(char32_t point) {
  const auto* after = std::upper_bound(std::begin(stand_ins), std::end(stand_ins), static_cast<std::uint32_t>(point),
                                       [](std::uint32_t value, const StandIn& range) { return value < range.first; });
  return after != std::begin(stand_ins) && point <= std::prev(after)->last ? std::prev(after)->instead : point;
}

// The text with stand-ins, of the same length byte for byte; empty where there is nothing to replace.
std::string with_stand_ins(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (static_cast<unsigned char>(text[at]) < 0xE0) {  // the table begins far above two-byte code points
      ++at;
      continue;
    }
    const CodePoint c = code_point_at(text, at);
    if (const char32_t instead = stand_in(c.value); instead != c.value) {
      if (out.empty()) out = text;
      std::string bytes;
      append_utf8(bytes, instead);
      out.replace(at, bytes.size(), bytes);
    }
    at += static_cast<std::size_t>(c.length);
  }
  return out;
}

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

struct MatchData {
  explicit MatchData(const pcre2_code* code) : data(pcre2_match_data_create_from_pattern(code, nullptr)) {}
  ~MatchData() { pcre2_match_data_free(data); }
  MatchData(const MatchData&) = delete;
  pcre2_match_data* data;
};

}  // namespace

struct Regex::Code {
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
  bool jit = false;
  std::string pattern;

  // The end of the subject reached by pcre2_match's usual limits is an error, never an endless search.
  int match(std::string_view text, std::size_t from, pcre2_match_data* data) const {
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    int result = jit ? pcre2_jit_match(code, subject, text.size(), from, 0, data, nullptr) : PCRE2_ERROR_JIT_STACKLIMIT;
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its stack on the heap
      result = pcre2_match(code, subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, nullptr);
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
      throw FileError(fmt::format("tokenizer.json: the pattern '{}' cannot be matched on this text: {}", pattern, message_of(result)));
    return result;
  }
};

Regex::Regex(const std::string& pattern) {
  const std::string translated = translate_pattern(pattern);
  auto code = std::make_shared<Code>();
  code->pattern = pattern;
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context, 100);
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (!code->code)
    throw ConfigError(fmt::format("the pattern '{}' cannot be used: {} (at {} of '{}')", pattern, message_of(error), offset, translated));
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(code);
}

Regex Regex::literal(const std::string& text) {
  if (text.empty()) throw ConfigError("an empty pattern cannot be used");
  Regex regex;
  regex.literal_ = text;
  return regex;
}

void Regex::find_all(std::string_view text, std::vector<Match>& matches) const {
  matches.clear();
  if (text.empty()) return;
  if (!code_) {
    for (std::size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, at + literal_.size()))
      matches.push_back({at, at + literal_.size()});
    return;
  }
  const std::string replaced = with_stand_ins(text);
  const std::string_view subject = replaced.empty() ? text : std::string_view(replaced);
  const MatchData match(code_->code);
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.data);
  std::size_t from = 0;
  bool any = false;
  std::size_t last_end = 0;
  while (from <= subject.size() && code_->match(subject, from, match.data) >= 0) {
    const std::size_t begin = found[0], end = found[1];
    if (begin > end) throw Error("the tokenizer's pattern matches backwards");
    if (begin == end && any && last_end == end) {  // an empty match right after a match: go on one character later
      from += from < subject.size() ? static_cast<std::size_t>(code_point_at(subject, from).length) : 1;
      continue;
    }
    matches.push_back({begin, end});
    from = last_end = end;
    any = true;
  }
}

}  // namespace ppengine::models::tokenizer
