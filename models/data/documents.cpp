// Lines of .jsonl files as tokens.
#include <ppengine/models/data/documents.hpp>

#include <fmt/core.h>

#include <algorithm>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/models/chat/chat_template.hpp>

namespace ppengine::models {
namespace {

void check_messages(const JsonPlace& messages) {
  messages.expect_array();
  if (messages.size() == 0) messages.refuse("is empty");
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const JsonPlace message = messages.element(i);
    message.expect_object();
    message.at("role").string();
    if (message.absent("tool_calls")) message.at("content");
  }
}

bool begins_with(const std::vector<std::int32_t>& all, const std::vector<std::int32_t>& begin) {
  return all.size() >= begin.size() && std::equal(begin.begin(), begin.end(), all.begin());
}

// So much of what follows an earlier turn ends it. A template may end the conversation otherwise (Phi-3 has an end token more): what both
// have in common counts then, up to the end of a line or of a mark, since the next marks may begin alike.
std::size_t end_mark(std::string_view behind, std::string_view behind_last) {
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(behind, behind_last).in1 - behind.begin());
  if (same == behind_last.size()) return same;
  return behind.substr(0, same).find_last_of("\n>]") + 1;  // of none: 0
}

}  // namespace

ExampleMaker::ExampleMaker(const DataOptions& options) : tokenizer_(options.tokenizer), vocabulary_(options.vocabulary) {
  if (!options.end_tokens.empty() && tokenizer_) end_ = options.end_tokens.front();
  if (options.folder.empty()) return;
  if (const auto chat = ChatTemplate::load(options.folder))
    render_ = [chat = *chat](const Conversation& conversation, bool generation_prompt) {
      ChatOptions how;
      how.add_generation_prompt = generation_prompt;
      how.tools = conversation.tools;
      return chat.render(conversation.messages, how);
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
  auto begin = encode(prompt, true);
  // Some tokenizers put the end token behind every text: a prompt goes on.
  if (end_ && !begin.empty() && begin.back() == *end_)
    if (const auto plain = encode(prompt, false); plain.empty() || plain.back() != *end_) begin.pop_back();
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

// Where the content of a message lies in the text: what changes with it. None where more changes.
std::optional<ExampleMaker::Turn> ExampleMaker::content_in(const Conversation& conversation, const std::string& text,
                                                           std::size_t message) const {
  constexpr char mark = '\1';
  if (text.find(mark) != std::string::npos) return {};
  Conversation marked = conversation;
  marked.messages[message]["content"] = std::string(1, mark);
  const std::string other = render_(marked, false);
  const std::size_t begin = other.find(mark), behind = other.size() - std::min(begin, other.size() - 1) - 1;
  if (begin == std::string::npos || text.size() < begin + behind || text.compare(0, begin, other, 0, begin) != 0 ||
      text.compare(text.size() - behind, behind, other, begin + 1, behind) != 0)
    return {};
  return Turn{begin, text.size() - behind};
}

// A turn of the assistant is what the template writes for it behind what it writes when it is the assistant's turn. Templates that write
// earlier turns anew (without their thoughts, say) show it by its content, and by what they write behind that of a last message.
ExampleMaker::Turn ExampleMaker::turn_of(const Conversation& conversation, const std::string& text, std::size_t message,
                                         const std::string& place) const {
  const auto first = [&](std::size_t count) {
    Conversation some{nlohmann::ordered_json::array(), conversation.tools};
    for (std::size_t k = 0; k < count; ++k) some.messages.push_back(conversation.messages[k]);
    return some;
  };
  const Conversation until = first(message + 1);
  const bool last = message + 1 == conversation.messages.size();
  const std::string before = message > 0 ? render_(first(message), true) : "", with = last ? text : render_(until, false);
  const bool begins = text.starts_with(before);
  if (begins && text.starts_with(with)) return {before.size(), with.size()};
  const auto content = content_in(conversation, text, message), alone = content_in(until, with, message);
  if (!content || !alone)
    throw FileError(
        fmt::format("{}: the chat template writes earlier turns anew for message {}: the assistant's turns cannot be told apart; "
                    "give prompt and completion instead",
                    place, message + 1));
  const std::size_t end = content->second + end_mark(std::string_view(text).substr(content->second), with.substr(alone->second));
  return {begins ? std::min(before.size(), content->first) : content->first, end};
}

Example ExampleMaker::from_messages(const Conversation& conversation, const std::string& place) const {
  if (!render_) throw FileError(fmt::format("{}: messages need a chat template, and the model's folder has none", place));
  Turns turns;
  const std::string text = render_(conversation, false);
  for (std::size_t i = 0; i < conversation.messages.size(); ++i)
    if (conversation.messages[i].at("role") == "assistant") turns.push_back(turn_of(conversation, text, i, place));
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
    check_messages(*messages);
    const auto tools = root.find("tools");
    if (tools) tools->expect_array();
    const auto ordered = nlohmann::ordered_json::parse(line);  // templates write objects (tools, arguments) in the order of their keys
    example = from_messages({ordered.at("messages"), tools && tools->size() > 0 ? ordered.at("tools") : nullptr}, place);
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
  return example;
}

}  // namespace ppengine::models
