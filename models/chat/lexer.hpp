// Tokens of a template, with whitespace control as transformers sets it (trim_blocks, lstrip_blocks).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ppengine/models/chat/value.hpp>

namespace ppengine::models::chat {

struct Token {
  enum class Kind { text, block_begin, block_end, variable_begin, variable_end, name, string, number, symbol, end };
  Kind kind = Kind::end;
  int line = 1;
  std::string text;  // of names, strings, symbols and text
  Value value;       // of numbers
};

std::vector<Token> tokenize(std::string_view text, const std::string& name);

}  // namespace ppengine::models::chat
