// Everything a tokenizer.json says, ready to run.
#pragma once

#include <span>
#include <unordered_map>

#include <ppengine/models/tokenizer/detail/added_tokens.hpp>
#include <ppengine/models/tokenizer/detail/bpe.hpp>
#include <ppengine/models/tokenizer/detail/steps.hpp>

namespace ppengine::models::tokenizer {

struct Pipeline {
  std::vector<Normalizer> normalizers;
  PreTokenizers pre_tokenizers;
  Bpe model;
  std::vector<PostProcessor> post_processors;
  Decoders decoders;

  TokenMatcher raw_tokens;         // looked for in the text as it is
  TokenMatcher normalized_tokens;  // looked for after normalization
  std::unordered_map<std::string, std::int32_t> added_ids;
  struct Shown {
    std::string content;  // what id_to_token() gives
    std::string decoded;  // what decoders see: the normalized form
    bool special = false;
  };
  std::unordered_map<std::int32_t, Shown> tokens;
  std::int32_t largest_id = -1;

  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens) const;
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;
  std::string bytes_of(const std::string& token) const;  // in the middle of a text
  void normalize(std::string& text, bool& at_start) const;
};

Pipeline read_pipeline(const JsonPlace& file);

}  // namespace ppengine::models::tokenizer
