// Decoders of tokenizer.json: from the tokens' strings to text.
#include <fmt/core.h>

#include <algorithm>
#include <numeric>

#include <ppengine/models/tokenizer/detail/byte_level.hpp>
#include <ppengine/models/tokenizer/detail/steps.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>

namespace ppengine::models::tokenizer {
namespace {

using Tokens = std::vector<std::string>;

std::string joined(const Tokens& tokens) {
  std::string text;
  for (const std::string& token : tokens) text += token;
  return text;
}

void replace_in(std::string& text, const std::string& from, const std::string& to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) text.replace(at, from.size(), to);
}

// All tokens' bytes together, so that characters cut between tokens come out whole.
void decode_byte_level(Tokens& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    const auto decoded = byte_alphabet.decode(token);
    bytes += decoded ? *decoded : token;
  }
  tokens = {make_valid_utf8(bytes)};
}

// A run of byte tokens is its text if that is valid, and otherwise as many U+FFFD as there are bytes.
void decode_byte_fallback(Tokens& tokens) {
  Tokens out;
  std::string run;
  const auto finish_run = [&] {
    if (run.empty()) return;
    if (is_valid_utf8(run))
      out.push_back(run);
    else
      out.insert(out.end(), run.size(), "\xEF\xBF\xBD");
    run.clear();
  };
  for (std::string& token : tokens) {
    if (const int byte = byte_of(token); byte >= 0) {
      run += static_cast<char>(static_cast<unsigned char>(byte));
    } else {
      finish_run();
      out.push_back(std::move(token));
    }
  }
  finish_run();
  tokens = std::move(out);
}

void strip(std::string& token, const std::string& content, std::int64_t start, std::int64_t stop) {
  std::size_t begin = 0, end = token.size();
  for (std::int64_t i = 0; i < start && std::string_view(token).substr(begin).starts_with(content); ++i) begin += content.size();
  for (std::int64_t i = 0; i < stop && end >= begin + content.size() && std::string_view(token).substr(0, end).ends_with(content); ++i)
    end -= content.size();
  token = token.substr(begin, end - begin);
}

void read(const JsonPlace& place, Decoders& out) {
  const JsonPlace type = place.at("type");
  const std::string& name = type.string();
  if (name == "Sequence") {
    const JsonPlace list = place.at("decoders");
    for (std::size_t i = 0; i < list.expect_array().size(); ++i) read(list.element(i), out);
  } else if (name == "ByteLevel") {
    out.steps.push_back(decode_byte_level);
    out.byte_level = true;
  } else if (name == "ByteFallback") {
    out.steps.push_back(decode_byte_fallback);
    out.byte_fallback = true;
  } else if (name == "Fuse") {
    out.steps.push_back([](Tokens& tokens) { tokens = {joined(tokens)}; });
  } else if (name == "Strip") {
    const std::string content = read_character(place.at("content"));
    const std::int64_t start = place.at("start").integer(0, INT64_MAX), stop = place.at("stop").integer(0, INT64_MAX);
    out.steps.push_back([=](Tokens& tokens) {
      for (std::string& token : tokens) strip(token, content, start, stop);
    });
  } else if (name == "Replace") {
    const Regex pattern = read_pattern(place.at("pattern"));
    const std::string content = place.at("content").string();
    out.steps.push_back([=](Tokens& tokens) {
      std::vector<Match> matches;
      for (std::string& token : tokens) {
        pattern.find_all(token, matches);
        for (auto match = matches.rbegin(); match != matches.rend(); ++match)
          token.replace(match->begin, match->end - match->begin, content);
      }
    });
  } else if (name == "Metaspace") {
    const std::string mark = read_character(place.at("replacement"));
    const bool drop_first = place.string_or("prepend_scheme", "always") != "never" && place.boolean_or("add_prefix_space", true);
    out.steps.push_back([=](Tokens& tokens) {
      for (std::size_t i = 0; i < tokens.size(); ++i) replace_in(tokens[i], mark, i == 0 && drop_first ? "" : " ");
    });
  } else if (name == "BPEDecoder") {
    const std::string suffix = place.string_or("suffix", "</w>");
    if (suffix.empty()) place.at("suffix").refuse("must not be empty");
    out.steps.push_back([=](Tokens& tokens) {
      for (std::size_t i = 0; i < tokens.size(); ++i) replace_in(tokens[i], suffix, i + 1 == tokens.size() ? "" : " ");
    });
  } else {
    type.refuse(fmt::format("is '{}', which is not supported", name));
  }
}

}  // namespace

int byte_of(const std::string& token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  // Rust's parser of numbers takes a sign.
  int value = 0;
  for (std::size_t i = token[3] == '+' ? 4 : 3; i < 5; ++i) {
    const char c = token[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

Decoders read_decoders(const JsonPlace& place) {
  Decoders out;
  out.present = !place.json().is_null();
  if (out.present) read(place, out);
  return out;
}

}  // namespace ppengine::models::tokenizer
