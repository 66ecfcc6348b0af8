// Examples of fine-tuning data as tokens: which of them the model is to learn.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <ppengine/models/data/data.hpp>

namespace ppengine::models {

struct Example {
  std::vector<std::int32_t> tokens;
  std::vector<char> learned;  // by token: whether it counts as a target
};

// Makes examples of lines of a .jsonl file. May be used from several threads.
//   {"text": T}                     the tokenizer's tokens for T and the end token; all are learned
//   {"prompt": P, "completion": C}  the tokens of P + C and the end token; learned are those behind P's
//   {"messages": [...]}             as the model's chat template writes them, with "tools" where given; learned are the assistant's turns
// An example may have fewer than two tokens, or none that is learned.
class ExampleMaker {
 public:
  explicit ExampleMaker(const DataOptions& options);
  // place: the file and the line, for errors.
  Example make(std::string_view line, const std::string& place) const;

 private:
  std::vector<std::int32_t> encode(std::string_view text, bool special) const;
  Example from_text(const std::string& text) const;
  Example from_prompt(const std::string& prompt, const std::string& completion) const;
  struct Conversation {
    nlohmann::ordered_json messages, tools;  // tools: null where there are none
  };
  using Turn = std::pair<std::size_t, std::size_t>;  // of the assistant: begin and end in the text
  using Turns = std::vector<Turn>;
  Example from_messages(const Conversation& conversation, const std::string& place) const;
  Turn turn_of(const Conversation& conversation, const std::string& text, std::size_t message, const std::string& place) const;
  std::optional<Turn> content_in(const Conversation& conversation, const std::string& text, std::size_t message) const;
  std::optional<Example> cut_tokens(const std::string& text, const Turns& turns) const;
  void add_end(Example& example) const;

  std::optional<Tokenizer> tokenizer_;
  std::optional<std::int32_t> end_;
  std::int64_t vocabulary_;
  // The text of a conversation; null: the model has no template.
  std::function<std::string(const Conversation& conversation, bool generation_prompt)> render_;
};

}  // namespace ppengine::models
