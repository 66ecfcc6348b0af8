// What OpenAI's clients send and expect: requests with their fields checked, errors with status, type, param and code.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <ppengine/runs/sampler.hpp>

namespace ppengine::runs::serving {

using Json = nlohmann::ordered_json;

struct ApiError : std::runtime_error {
  ApiError(int http_status, const std::string& text, std::string which = "", std::string error_code = "")
      : std::runtime_error(text), status(http_status), param(std::move(which)), code(std::move(error_code)) {}
  int status;
  std::string param, code;
  std::string body() const;
};

using Ids = std::vector<std::int32_t>;

// Calls of tools: none are looked for; found in the text; the arguments of one tool, or a call of any of them, are forced.
enum class ToolUse { none, found, one_tool, any_tool };

struct CompletionRequest {
  bool chat = false;
  std::string model;                                    // empty: not given
  std::vector<std::variant<std::string, Ids>> prompts;  // completions
  Json messages, tools;                                 // chat
  ToolUse tool_use = ToolUse::none;
  std::string tool;                          // with ToolUse::one_tool
  Json template_variables = Json::object();  // chat_template_kwargs
  bool add_generation_prompt = true;
  std::optional<std::int64_t> max_tokens;
  std::int64_t n = 1, best_of = 1;  // best_of: sequences of a prompt, of which the n likeliest are answered
  bool shows_logprobs = false;
  SamplingOptions sampling;
  bool seeded = false;
  std::vector<TokenBias> bias;
  std::vector<std::string> stops;
  std::string schema;  // of response_format, as JSON; empty: any text
  bool stream = false, include_usage = false, echo = false, ignore_eos = false;
  bool skip_special_tokens = true;
};

// Parsed with limits on depth and size. ApiError 400 for what is not JSON, not UTF-8 or not an object.
Json parse_body(std::string_view body);
// ApiError 400 names a field of a wrong type or out of range. Fields that are not known are ignored.
CompletionRequest parse_completion(const Json& body, bool chat);

// Fields with their type checked; absent and null are the same.
const Json* find(const Json& body, const char* name);
std::optional<bool> boolean(const Json& body, const char* name);
std::optional<double> number(const Json& body, const char* name, double low, double high);
std::optional<std::int64_t> integer(const Json& body, const char* name, std::int64_t low, std::int64_t high);
std::optional<std::string> text(const Json& body, const char* name);
Ids token_ids(const Json& list, const char* name);

}  // namespace ppengine::runs::serving
