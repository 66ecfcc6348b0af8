// A model folder's chat template: found, parsed once, rendered for each conversation.
#include <ppengine/models/chat/chat_template.hpp>

#include <fmt/core.h>

#include <ppengine/base/detail/json.hpp>
#include <ppengine/base/file.hpp>
#include <ppengine/models/chat/evaluator.hpp>
#include <ppengine/models/chat/syntax.hpp>

namespace ppengine::models {
namespace {

constexpr std::uint64_t max_template_bytes = 4 << 20, max_config_bytes = 64 << 20;
using Json = nlohmann::ordered_json;

// "bos_token": "<s>" or {"content": "<s>", ...}, and whatever else is called *_token.
void add_special_tokens(const nlohmann::json& config, Json& variables) {
  if (!config.is_object()) return;
  for (const auto& [key, value] : config.items()) {
    const bool token = key.ends_with("_token") && !key.starts_with("add_");
    if (token && value.is_string()) variables[key] = value.get<std::string>();
    if (token && value.is_object() && value.contains("content") && value["content"].is_string())
      variables[key] = value["content"].get<std::string>();
    if (key == "additional_special_tokens" && value.is_array()) {
      Json list = Json::array();
      for (const auto& each : value)
        if (each.is_string()) list.push_back(each.get<std::string>());
      variables[key] = std::move(list);
    }
  }
}

}  // namespace

struct ChatTemplate::Parsed {
  std::string name;
  chat::Body body, with_tools;  // with_tools: of templates that have one of their own for it; may be empty
  Json variables;
};

ChatTemplate ChatTemplate::parse(std::string_view text, const std::string& name, const Json& variables) {
  if (text.size() > max_template_bytes) throw TemplateError(fmt::format("{}: larger than {} MiB", name, max_template_bytes >> 20));
  auto parsed = std::make_shared<Parsed>();
  parsed->name = name;
  parsed->body = chat::parse(text, name);
  parsed->variables = variables;
  return ChatTemplate(std::move(parsed));
}

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& folder) {
  Json variables = Json::object();
  nlohmann::json config;
  for (const char* file : {"special_tokens_map.json", "tokenizer_config.json"}) {
    const auto path = folder / file;
    if (!std::filesystem::exists(path)) continue;
    config = read_json(path, max_config_bytes, {.refuse_duplicate_keys = false});
    add_special_tokens(config, variables);
  }
  if (const auto path = folder / "chat_template.jinja"; std::filesystem::exists(path))
    return parse(read_file(path, max_template_bytes), path.string(), variables);
  const std::string name = (folder / "tokenizer_config.json").string() + ": chat_template";
  if (!config.is_object() || !config.contains("chat_template") || config["chat_template"].is_null()) return {};
  const nlohmann::json& found = config["chat_template"];
  if (found.is_string()) return parse(found.get<std::string>(), name, variables);
  // Several, by name: "default", and "tool_use" for conversations with tools.
  if (!found.is_array()) throw FileError(fmt::format("{} must be a text or a list", name));
  auto parsed = std::make_shared<Parsed>();
  parsed->name = name;
  parsed->variables = variables;
  bool chosen = false;
  for (const nlohmann::json& each : found) {
    if (!each.is_object() || !each.contains("name") || !each.contains("template") || !each["name"].is_string() ||
        !each["template"].is_string())
      throw FileError(fmt::format("{}: every element must have a name and a template", name));
    const std::string text = each["template"].get<std::string>();
    if (each["name"] == "default") parsed->body = chat::parse(text, name), chosen = true;
    if (each["name"] == "tool_use") parsed->with_tools = chat::parse(text, name);
  }
  if (!chosen) throw FileError(fmt::format("{} has no element named 'default'", name));
  return ChatTemplate(std::move(parsed));
}

std::string ChatTemplate::render(const Json& messages, const ChatOptions& options) const {
  chat::Evaluator evaluator(parsed_->name, options.now);
  try {
    for (const Json* all : {&parsed_->variables, &options.variables})
      for (const auto& [key, value] : all->items()) evaluator.define(key, chat::Value::from_json(value));
    evaluator.define("messages", chat::Value::from_json(messages));
    evaluator.define("tools", chat::Value::from_json(options.tools));
    evaluator.define("documents", chat::None{});
    evaluator.define("add_generation_prompt", options.add_generation_prompt);
  } catch (const TemplateError& error) {
    throw TemplateError(fmt::format("{}: the messages: {}", parsed_->name, error.what()));
  }
  const bool tools = !options.tools.is_null() && !parsed_->with_tools.empty();
  return evaluator.run(tools ? parsed_->with_tools : parsed_->body);
}

}  // namespace ppengine::models
