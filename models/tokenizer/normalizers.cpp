// Normalizers of tokenizer.json.
#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/models/tokenizer/detail/byte_level.hpp>
#include <ppengine/models/tokenizer/detail/steps.hpp>
#include <ppengine/models/tokenizer/detail/unicode.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {
namespace {

void strip(std::string& text, bool left, bool right, bool& at_start) {
  std::size_t begin = 0, end = text.size();
  while (left && begin < end && is_whitespace(code_point_at(text, begin).value))
    begin += static_cast<std::size_t>(code_point_at(text, begin).length);
  while (right && end > begin && is_whitespace(code_point_before(text, end).value))
    end -= static_cast<std::size_t>(code_point_before(text, end).length);
  if (begin > 0) at_start = false;
  text = text.substr(begin, end - begin);
}

void strip_marks(std::string& text, bool& at_start) {
  std::string kept;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!is_mark(c.value))
      kept += text.substr(at, static_cast<std::size_t>(c.length));
    else if (at == 0)
      at_start = false;
    at += static_cast<std::size_t>(c.length);
  }
  text = std::move(kept);
}

void replace_all(std::string& text, const Regex& pattern, const std::string& content, bool& at_start) {
  std::vector<Match> matches;
  pattern.find_all(text, matches);
  if (matches.empty()) return;
  if (matches.front().begin == 0 && matches.front().end > 0 && content.empty()) at_start = false;
  std::string out;
  std::size_t done = 0;
  for (const Match& match : matches) {
    out.append(text, done, match.begin - done);
    out += content;
    done = match.end;
  }
  out.append(text, done);
  text = std::move(out);
}

void read(const JsonPlace& place, std::vector<Normalizer>& steps) {
  const JsonPlace type = place.at("type");
  const std::string& name = type.string();
  const auto form = [&](NormalForm which) { steps.push_back([which](std::string& text, bool&) { text = normalize(text, which); }); };
  if (name == "Sequence") {
    const JsonPlace list = place.at("normalizers");
    for (std::size_t i = 0; i < list.expect_array().size(); ++i) read(list.element(i), steps);
  } else if (name == "NFC") {
    form(NormalForm::nfc);
  } else if (name == "NFD") {
    form(NormalForm::nfd);
  } else if (name == "NFKC") {
    form(NormalForm::nfkc);
  } else if (name == "NFKD") {
    form(NormalForm::nfkd);
  } else if (name == "Lowercase") {
    steps.push_back([](std::string& text, bool&) { text = lowercase(text); });
  } else if (name == "ByteLevel") {
    steps.push_back([](std::string& text, bool&) { text = byte_alphabet.encode(text); });
  } else if (name == "StripAccents") {
    steps.push_back([](std::string& text, bool& at_start) { strip_marks(text, at_start); });
  } else if (name == "Strip") {
    const bool left = place.at("strip_left").boolean(), right = place.at("strip_right").boolean();
    steps.push_back([=](std::string& text, bool& at_start) { strip(text, left, right, at_start); });
  } else if (name == "Prepend") {
    const std::string prefix = place.at("prepend").string();
    steps.push_back([=](std::string& text, bool&) {
      if (!text.empty()) text.insert(0, prefix);
    });
  } else if (name == "Replace") {
    const Regex pattern = read_pattern(place.at("pattern"));
    const std::string content = place.at("content").string();
    steps.push_back([=](std::string& text, bool& at_start) { replace_all(text, pattern, content, at_start); });
  } else {
    type.refuse(fmt::format("is '{}', which is not supported", name));
  }
}

}  // namespace

std::vector<Normalizer> read_normalizers(const JsonPlace& place) {
  std::vector<Normalizer> steps;
  if (!place.json().is_null()) read(place, steps);
  return steps;
}

Regex read_pattern(const JsonPlace& place) {
  place.expect_object();
  try {
    if (const auto text = place.find("String")) return Regex::literal(text->string());
    if (const auto pattern = place.find("Regex")) return Regex(pattern->string());
  } catch (const ConfigError& error) {
    place.refuse(fmt::format("is not supported: {}", error.what()));
  }
  place.refuse("must hold a String or a Regex");
}

std::string read_character(const JsonPlace& place) {
  const std::string& text = place.string();
  if (text.empty() || static_cast<std::size_t>(code_point_at(text, 0).length) != text.size()) place.refuse("must be one character");
  return text;
}

}  // namespace ppengine::models::tokenizer
