// Text to token ids and back, from a tokenizer.json: byte-level and sentencepiece-style BPE, with the ids that
// Hugging Face's tokenizers gives.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ppengine::models {

namespace tokenizer {
struct Pipeline;
}

// Immutable once made: may be used from several threads, copies share their tables.
class Tokenizer {
 public:
  // FileError names the file and the field of what is broken or not supported.
  static Tokenizer load(const std::filesystem::path& tokenizer_json);
  static Tokenizer parse(std::string_view json, const std::string& name);

  // Bytes that are not UTF-8 are read as U+FFFD, one for each maximal ill-formed part (as Python's errors="replace").
  std::vector<std::int32_t> encode(std::string_view text, bool add_special_tokens = true) const;
  // Always valid UTF-8. Ids that are not in the vocabulary are passed over, as Hugging Face does.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens = true) const;

  std::size_t vocabulary_size() const;  // largest id + 1
  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  std::optional<std::string> id_to_token(std::int32_t id) const;
  bool is_special(std::int32_t id) const;
  // What a token adds to a text that other tokens have begun: any bytes, where a character is cut between tokens. Empty for special tokens
  // and ids that are not in the vocabulary.
  std::string bytes_of(std::int32_t id) const;

 private:
  explicit Tokenizer(std::shared_ptr<const tokenizer::Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}
  friend class StreamDecoder;
  std::shared_ptr<const tokenizer::Pipeline> pipeline_;
};

// Text as it is generated: push() gives what is certain by now and holds back a character that is not complete. All
// pieces and finish() together are what decode() gives for all ids.
class StreamDecoder {
 public:
  explicit StreamDecoder(Tokenizer decoder, bool skip_special_tokens = true)
      : tokenizer_(std::move(decoder)), skip_special_tokens_(skip_special_tokens) {}

  std::string push(std::int32_t id);
  std::string finish();

 private:
  Tokenizer tokenizer_;
  bool skip_special_tokens_;
  std::vector<std::int32_t> window_;  // the last ids: enough context to decode the next one
  std::size_t given_ = 0;             // bytes of the window's text already handed out
};

}  // namespace ppengine::models
