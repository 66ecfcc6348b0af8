// The parts of a tokenizer.json as lists of steps, made by the readers in this folder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/models/tokenizer/detail/pieces.hpp>

namespace ppengine::models::tokenizer {

// Rewrites a text. at_start becomes false where the text's beginning is taken away.
using Normalizer = std::function<void(std::string& text, bool& at_start)>;
using PreTokenizer = std::function<void(Pieces&)>;
using PostProcessor = std::function<std::vector<std::int32_t>(std::vector<std::int32_t> ids, bool add_special_tokens)>;
using Decoder = std::function<void(std::vector<std::string>& tokens)>;

struct PreTokenizers {
  std::vector<PreTokenizer> steps;
  bool byte_level_last = false;  // pieces stay bytes; the model maps them to the alphabet
};
struct Decoders {
  std::vector<Decoder> steps;
  bool byte_level = false, byte_fallback = false;
  bool present = false;  // without any, tokens are joined by spaces
};

std::vector<Normalizer> read_normalizers(const JsonPlace& place);
PreTokenizers read_pre_tokenizers(const JsonPlace& place);
std::vector<PostProcessor> read_post_processors(const JsonPlace& place);
Decoders read_decoders(const JsonPlace& place);
// The byte that a token of byte fallback stands for ("<0x0A>"), or -1.
int byte_of(const std::string& token);

// {"String": "..."} or {"Regex": "..."}; FileError with the place for a pattern that cannot be used.
Regex read_pattern(const JsonPlace& place);
// A field that must hold one character.
std::string read_character(const JsonPlace& place);

}  // namespace ppengine::models::tokenizer
