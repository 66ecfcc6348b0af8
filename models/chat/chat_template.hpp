// Chat templates: the text that a model reads for a conversation, by the Jinja template in its folder.
#pragma once

#include <nlohmann/json.hpp>

#include <ctime>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <ppengine/base/error.hpp>

namespace ppengine::models {

// A template that cannot be read or carried out, or that refuses the messages (raise_exception). The text has the line.
class TemplateError : public Error {
 public:
  explicit TemplateError(const std::string& what) : Error(what, ExitCode::usage) {}
};

struct ChatOptions {
  bool add_generation_prompt = true;
  nlohmann::ordered_json tools = nullptr;                               // an array, or null: none
  nlohmann::ordered_json variables = nlohmann::ordered_json::object();  // further names that the template knows
  std::optional<std::time_t> now{};                                     // of strftime_now; empty: the clock
};

// Immutable once made: may be used from several threads, copies share the parsed template.
class ChatTemplate {
 public:
  // chat_template.jinja, or chat_template of tokenizer_config.json, with the special tokens of tokenizer_config.json
  // and special_tokens_map.json. None where the folder has no template; FileError for a broken file, TemplateError for a
  // construct that is not supported.
  static std::optional<ChatTemplate> load(const std::filesystem::path& folder);
  // variables: an object of names that every rendering knows (bos_token).
  static ChatTemplate parse(std::string_view text, const std::string& name,
                            const nlohmann::ordered_json& variables = nlohmann::ordered_json::object());

  // messages: an array of objects with role and content. The text has the special tokens in it: encode it without adding more.
  std::string render(const nlohmann::ordered_json& messages, const ChatOptions& options) const;
  std::string render(const nlohmann::ordered_json& messages, bool add_generation_prompt) const {
    ChatOptions options;
    options.add_generation_prompt = add_generation_prompt;
    return render(messages, options);
  }

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace ppengine::models
