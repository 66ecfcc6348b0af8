// Lines of .jsonl files as tokens.
#include <ppengine/models/data/documents.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/models/chat/chat_template.hpp>

namespace ppengine::models {
namespace {

bool begins_with(const std::vector<std::int32_t>& all, const std::vector<std::int32_t>& begin) {
  return all.size() >= begin.size() && std::equal(begin.begin(), begin.end(), all.begin());
}

}  // namespace

ExampleMaker::ExampleMaker(const DataOptions& options) : tokenizer_(options.tokenizer), vocabulary_(options.vocabulary) {
  if (!options.end_tokens.empty() && tokenizer_) end_ = options.end_tokens.front();
  if (options.folder.empty()) return;
  if (const auto chat = ChatTemplate::load(options.folder))
    render_ = [chat = *chat](const nlohmann::json& messages, bool generation_prompt) {
      return chat.render(nlohmann::ordered_json(messages), generation_prompt);
    };
}

std::vector<std::int32_t> ExampleMaker::encode(std::string_view text, bool special) const {
  if (tokenizer_) return tokenizer_->encode(text, special);
  std::vector<std::int32_t> bytes;
  for (const char one : text) bytes.push_back(static_cast<unsigned char>(one));
  return bytes;
}

void ExampleMaker::add_end(Example& example) const {
  if (!end_ || (!example.tokens.empty() && example.tokens.back() == *end_)) return;
  example.tokens.push_back(*end_);
  example.learned.push_back(1);
}

Example ExampleMaker::from_text(const std::string& text) const {
  Example example{encode(text, true), {}};
  example.learned.assign(example.tokens.size(), 1);
  add_end(example);
  return example;
}

// The tokens of the whole text where they begin with the prompt's, as they do but for a border within a word; else prompt and completion
// each for itself: that is what the model sees when it completes the prompt.
Example ExampleMaker::from_prompt(const std::string& prompt, const std::string& completion) const {
  const auto begin = encode(prompt, true);
  Example example{encode(prompt + completion, true), {}};
  if (!begins_with(example.tokens, begin)) {
    example.tokens = begin;
    const auto rest = encode(completion, false);
    example.tokens.insert(example.tokens.end(), rest.begin(), rest.end());
  }
  example.learned.assign(example.tokens.size(), 1);
  std::fill_n(example.learned.begin(), std::min(begin.size(), example.learned.size()), 0);
  add_end(example);
  return example;
}

// A turn of the assistant is what the template writes for it behind what it writes when it is the assistant's turn.
Example ExampleMaker::from_messages(const nlohmann::json& messages, const std::string& place) const {
  if (!render_) throw FileError(fmt::format("{}: messages need a chat template, and the model's folder has none", place));
  Turns turns;
  const std::string text = render_(messages, false);
  for (std::size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].at("role") != "assistant") continue;
    const auto until = [&](std::size_t count, bool prompt) {
      nlohmann::json some = nlohmann::json::array();
      for (std::size_t k = 0; k < count; ++k) some.push_back(messages[k]);
      return render_(some, prompt);
    };
    const std::string before = i > 0 ? until(i, true) : "", with = i + 1 == messages.size() ? text : until(i + 1, false);
    if (!text.starts_with(before) || !text.starts_with(with))
      throw FileError(
          fmt::format("{}: the chat template writes earlier turns anew for message {}: the assistant's turns cannot be told apart; "
                      "give prompt and completion instead",
                      place, i + 1));
    turns.emplace_back(before.size(), with.size());
  }
  if (auto whole = cut_tokens(text, turns)) return std::move(*whole);
  // The text in pieces at the turns' borders, each encoded for itself: a turn begins where the model would begin to write.
  Example example;
  std::size_t at = 0;
  const auto add = [&](std::size_t end, char learned) {
    if (end <= at) return;
    const auto tokens = encode(std::string_view(text).substr(at, end - at), false);
    example.tokens.insert(example.tokens.end(), tokens.begin(), tokens.end());
    example.learned.insert(example.learned.end(), tokens.size(), learned);
    at = end;
  };
  for (const auto& [begin, end] : turns) {
    add(begin, 0);
    add(end, 1);
  }
  add(text.size(), 0);
  return example;
}

// The tokens of the whole text, where every turn begins and ends between two of them.
std::optional<Example> ExampleMaker::cut_tokens(const std::string& text, const Turns& turns) const {
  Example example{encode(text, false), {}};
  example.learned.assign(example.tokens.size(), 0);
  for (const auto& [begin, end] : turns) {
    const auto before = encode(std::string_view(text).substr(0, begin), false), with = encode(std::string_view(text).substr(0, end), false);
    if (!begins_with(example.tokens, before) || !begins_with(example.tokens, with)) return {};
    for (std::size_t i = before.size(); i < with.size(); ++i) example.learned[i] = 1;
  }
  return example;
}

Example ExampleMaker::make(std::string_view line, const std::string& place) const {
  const nlohmann::json json = parse_json(line, place);
  const JsonPlace root(json, place);
  root.expect_object();
  Example example;
  if (const auto messages = root.find("messages")) {
    messages->expect_array();
    if (messages->size() == 0) messages->refuse("is empty");
    for (std::size_t i = 0; i < messages->size(); ++i) {
      const JsonPlace message = messages->element(i);
      message.expect_object();
      message.at("role").string();
      message.at("content");
    }
    example = from_messages(messages->json(), place);
  } else if (const auto text = root.find("text")) {
    example = from_text(text->string());
  } else if (root.find("prompt") || root.find("completion")) {
    example = from_prompt(root.at("prompt").string(), root.at("completion").string());
  } else {
    throw FileError(fmt::format("{}: has none of the fields text, prompt and completion, messages", place));
  }
  for (const std::int32_t token : example.tokens)
    if (token < 0 || token >= vocabulary_)
      throw FileError(fmt::format("{}: token {} is not in the model's vocabulary of {}", place, token, vocabulary_));
  if (example.tokens.size() < 2) throw FileError(fmt::format("{}: has fewer than two tokens: there is nothing to learn", place));
  return example;
}

}  // namespace ppengine::models
