// Requests of OpenAI's clients, checked field by field.
#include <ppengine/runs/serving/api.hpp>

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <random>

#include <ppengine/runs/serving/tool_calls.hpp>

namespace ppengine::runs::serving {
namespace {

constexpr int deepest = 64;
constexpr std::size_t most_keys = 10'000;  // objects that keep their order look keys up one by one
constexpr std::int64_t far = std::int64_t{1} << 40;

[[noreturn]] void refuse(const char* field, const std::string& what) { throw ApiError(400, fmt::format("'{}' {}", field, what), field); }

void read_stops(const Json& body, CompletionRequest& request) {
  const Json* found = find(body, "stop");
  if (!found) return;
  const Json list = found->is_array() ? *found : Json::array({*found});
  if (list.size() > 16) refuse("stop", "has more than 16 elements");
  for (const Json& each : list) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty())
      refuse("stop", "must be a text that is not empty, or a list of such");
    request.stops.push_back(each.get<std::string>());
  }
}

void read_bias(const Json& body, CompletionRequest& request) {
  const Json* found = find(body, "logit_bias");
  if (!found) return;
  if (!found->is_object()) refuse("logit_bias", "must be an object of token numbers and biases");
  for (const auto& [key, value] : found->items()) {
    TokenBias bias;
    const auto end = std::from_chars(key.data(), key.data() + key.size(), bias.id);
    if (end.ec != std::errc() || end.ptr != key.data() + key.size() || bias.id < 0)
      refuse("logit_bias", "has a key that is not a token number");
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 100))
      refuse("logit_bias", "has a bias that is not a number between -100 and 100");
    bias.bias = value.get<float>();
    request.bias.push_back(bias);
  }
}

void read_logprobs(const Json& body, CompletionRequest& request) {
  if (!request.chat) {
    if (const auto count = integer(body, "logprobs", 0, Choice::most_alternatives))
      request.sampling.logprobs = static_cast<std::int32_t>(*count);
    return;
  }
  const bool wanted = boolean(body, "logprobs").value_or(false);
  const auto count = integer(body, "top_logprobs", 0, Choice::most_alternatives);
  if (count && *count > 0 && !wanted) refuse("top_logprobs", "needs 'logprobs': true");
  if (wanted) request.sampling.logprobs = static_cast<std::int32_t>(count.value_or(0));
}

void read_best_of(const Json& body, CompletionRequest& request) {
  request.best_of = (request.chat ? std::nullopt : integer(body, "best_of", 1, 128)).value_or(request.n);
  if (request.best_of < request.n)
    refuse("best_of", fmt::format("is {} and must be at least 'n', which is {}", request.best_of, request.n));
  if (request.best_of == request.n) return;
  if (boolean(body, "stream").value_or(false)) refuse("best_of", "cannot be streamed: the best is known at the end");
  request.sampling.logprobs = std::max(request.sampling.logprobs, 0);
}

void read_format(const Json& body, CompletionRequest& request) {
  const Json* format = find(body, "response_format");
  if (!format || !request.schema.empty()) return;  // a forced call has its own
  const std::string type = format->is_object() ? text(*format, "type").value_or("") : "";
  if (type == "text") return;
  if (type == "json_object") {
    request.schema = R"({"type":"object"})";
  } else if (type == "json_schema") {
    const Json* named = find(*format, "json_schema");
    const Json* schema = named && named->is_object() ? find(*named, "schema") : nullptr;
    if (!schema || !schema->is_object()) refuse("response_format", "of type json_schema needs json_schema.schema, an object");
    request.schema = schema->dump();
  } else {
    refuse("response_format", "must be an object with 'type' text, json_object or json_schema");
  }
}

void read_prompts(const Json& body, CompletionRequest& request) {
  const Json* found = find(body, "prompt");
  if (!found) refuse("prompt", "is missing");
  if (found->is_string()) {
    request.prompts.emplace_back(found->get<std::string>());
  } else if (found->is_array() && !found->empty() && (*found)[0].is_number()) {
    request.prompts.emplace_back(token_ids(*found, "prompt"));
  } else if (found->is_array() && !found->empty()) {
    if (found->size() > 1024) refuse("prompt", "has more than 1024 elements");
    for (const Json& each : *found) {
      if (each.is_string())
        request.prompts.emplace_back(each.get<std::string>());
      else
        request.prompts.emplace_back(token_ids(each, "prompt"));
    }
  } else {
    refuse("prompt", "must be a text, a list of token numbers, or a list of these");
  }
}

void read_tools(const Json& body, CompletionRequest& request) {
  if (const Json* tools = find(body, "tools")) {
    if (!tools->is_array()) refuse("tools", "must be a list");
    for (const Json& tool : *tools)
      if (!tool.is_object() || !tool.contains("function") || !tool["function"].is_object() || !tool["function"].contains("name") ||
          !tool["function"]["name"].is_string())
        refuse("tools", "has an element without function.name");
    if (!tools->empty()) request.tools = *tools;
  }
  const bool some = request.tools.is_array();
  request.tool_use = some ? ToolUse::found : ToolUse::none;
  const Json* choice = find(body, "tool_choice");
  if (!choice || *choice == "auto") return;
  if (*choice == "none") {
    request.tools = nullptr;
    request.tool_use = ToolUse::none;
    return;
  }
  if (!some) refuse("tool_choice", "needs 'tools'");
  if (*choice == "required") {
    request.tool_use = ToolUse::any_tool;
    request.schema = tools_schema(request.tools).dump();
    return;
  }
  const Json* function = choice->is_object() ? find(*choice, "function") : nullptr;
  const std::string name = function && function->is_object() ? text(*function, "name").value_or("") : "";
  for (const Json& tool : request.tools)
    if (!name.empty() && tool["function"]["name"] == name) {
      request.tool_use = ToolUse::one_tool;
      request.tool = name;
      request.schema = arguments_schema(tool).dump();
      return;
    }
  refuse("tool_choice", "must be none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": one of the tools'}}");
}

void read_messages(const Json& body, CompletionRequest& request) {
  const Json* found = find(body, "messages");
  if (!found) refuse("messages", "is missing");
  if (!found->is_array() || found->empty()) refuse("messages", "must be a list with at least one message");
  request.messages = *found;
  for (Json& message : request.messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string())
      refuse("messages", "has an element without a 'role'");
    if (!message.contains("content")) message["content"] = nullptr;
    Json& content = message["content"];
    if (!content.is_string() && !content.is_array() && !content.is_null())
      refuse("messages", "has a 'content' that is neither a text nor a list of parts");
    if (content.is_array()) {  // parts of text become one text, which every template takes
      std::string whole;
      for (const Json& part : content) {
        if (!part.is_object() || part.value("type", Json()) != "text" || !part.contains("text") || !part["text"].is_string())
          refuse("messages", "has a part of content that is not text, and this model reads text only");
        if (!whole.empty()) whole += '\n';
        whole += part["text"].get_ref<const std::string&>();
      }
      content = whole;
    }
    // Arguments of calls come as JSON in a text; templates want the object.
    if (message.contains("tool_calls") && message["tool_calls"].is_array())
      for (Json& call : message["tool_calls"])
        if (call.is_object() && call.contains("function") && call["function"].is_object() && call["function"].contains("arguments") &&
            call["function"]["arguments"].is_string()) {
          Json parsed = Json::parse(call["function"]["arguments"].get<std::string>(), nullptr, false);
          if (parsed.is_object()) call["function"]["arguments"] = std::move(parsed);
        }
  }
  read_tools(body, request);
  if (const Json* more = find(body, "chat_template_kwargs")) {
    if (!more->is_object()) refuse("chat_template_kwargs", "must be an object");
    request.template_variables = *more;
  }
  request.add_generation_prompt = boolean(body, "add_generation_prompt").value_or(true);
}

}  // namespace

std::string ApiError::body() const {
  const char* type = status == 429 ? "rate_limit_error" : status >= 500 ? "server_error" : "invalid_request_error";  // as OpenAI's
  Json error{{"message", what()}, {"type", type}, {"param", nullptr}, {"code", nullptr}};
  if (!param.empty()) error["param"] = param;
  if (!code.empty()) error["code"] = code;
  return Json{{"error", error}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json parse_body(std::string_view body) {
  std::size_t keys = 0;
  try {
    Json parsed = Json::parse(body, [&](int depth, Json::parse_event_t event, Json&) {
      if (depth > deepest) throw ApiError(400, fmt::format("the body is nested deeper than {} levels", deepest));
      if (event == Json::parse_event_t::key && ++keys > most_keys)
        throw ApiError(400, fmt::format("the body has more than {} keys", most_keys));
      return true;
    });
    if (!parsed.is_object()) throw ApiError(400, "the body must be a JSON object");
    return parsed;
  } catch (const Json::exception& error) {
    // The text may quote the body, which may be anything.
    std::string shown;
    for (const char c : std::string_view(error.what()).substr(0, 200)) shown += c >= 32 && c < 127 ? c : '?';
    throw ApiError(400, fmt::format("the body is not valid JSON: {}", shown));
  }
}

const Json* find(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

std::optional<bool> boolean(const Json& body, const char* name) {
  const Json* found = find(body, name);
  if (!found) return {};
  if (!found->is_boolean()) refuse(name, "must be true or false");
  return found->get<bool>();
}

std::optional<double> number(const Json& body, const char* name, double low, double high) {
  const Json* found = find(body, name);
  if (!found) return {};
  if (!found->is_number()) refuse(name, "must be a number");
  const double value = found->get<double>();
  if (!(value >= low && value <= high)) refuse(name, fmt::format("is {} and must be between {} and {}", value, low, high));
  return value;
}

std::optional<std::int64_t> integer(const Json& body, const char* name, std::int64_t low, std::int64_t high) {
  const Json* found = find(body, name);
  if (!found) return {};
  if (!found->is_number_integer()) refuse(name, "must be an integer");
  const bool large = found->is_number_unsigned() && found->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX);
  const std::int64_t value = large ? INT64_MAX : found->get<std::int64_t>();
  if (value < low || value > high) refuse(name, fmt::format("is {} and must be between {} and {}", value, low, high));
  return value;
}

std::optional<std::string> text(const Json& body, const char* name) {
  const Json* found = find(body, name);
  if (!found) return {};
  if (!found->is_string()) refuse(name, "must be a text");
  return found->get<std::string>();
}

Ids token_ids(const Json& list, const char* name) {
  if (!list.is_array()) refuse(name, "must be a list of token numbers");
  Ids ids;
  for (const Json& each : list) {
    if (!each.is_number_integer() || each.get<std::int64_t>() < 0 || each.get<std::int64_t>() > INT32_MAX)
      refuse(name, "has an element that is not a token number");
    ids.push_back(each.get<std::int32_t>());
  }
  return ids;
}

CompletionRequest parse_completion(const Json& body, bool chat) {
  CompletionRequest request;
  request.chat = chat;
  request.model = text(body, "model").value_or("");
  chat ? read_messages(body, request) : read_prompts(body, request);
  request.max_tokens = integer(body, "max_tokens", 1, far);
  if (const auto newer = integer(body, "max_completion_tokens", 1, far)) request.max_tokens = newer;
  request.n = integer(body, "n", 1, 128).value_or(1);
  SamplingOptions& sampling = request.sampling;
  sampling.temperature = number(body, "temperature", 0, 100).value_or(1);
  sampling.top_p = number(body, "top_p", 0, 1).value_or(1);
  if (sampling.top_p == 0) sampling.temperature = 0, sampling.top_p = 1;
  const std::int64_t top_k = integer(body, "top_k", -1, far).value_or(0);
  sampling.top_k = top_k < 0 ? 0 : top_k;
  sampling.min_p = number(body, "min_p", 0, 1).value_or(0);
  sampling.repetition_penalty = number(body, "repetition_penalty", 1e-3, 1e3).value_or(1);
  sampling.presence_penalty = number(body, "presence_penalty", -2, 2).value_or(0);
  sampling.frequency_penalty = number(body, "frequency_penalty", -2, 2).value_or(0);
  if (const auto seed = integer(body, "seed", INT64_MIN, INT64_MAX)) {
    sampling.seed = static_cast<std::uint64_t>(*seed);
    request.seeded = true;
  } else {
    sampling.seed = std::random_device{}() | static_cast<std::uint64_t>(std::random_device{}()) << 32;
  }
  read_logprobs(body, request);
  request.shows_logprobs = sampling.logprobs >= 0;
  read_best_of(body, request);
  read_bias(body, request);
  read_stops(body, request);
  request.stream = boolean(body, "stream").value_or(false);
  if (const Json* options = find(body, "stream_options")) {
    if (!options->is_object()) refuse("stream_options", "must be an object");
    if (!request.stream) refuse("stream_options", "needs 'stream': true");
    request.include_usage = boolean(*options, "include_usage").value_or(false);
  }
  request.echo = !chat && boolean(body, "echo").value_or(false);
  if (request.echo && request.shows_logprobs)
    refuse("echo", "with 'logprobs' is not supported: log probabilities of prompts are not computed");
  if (!chat && find(body, "suffix") && !text(body, "suffix")->empty()) refuse("suffix", "is not supported");
  request.ignore_eos = boolean(body, "ignore_eos").value_or(false);
  request.skip_special_tokens = boolean(body, "skip_special_tokens").value_or(true);
  read_format(body, request);
  return request;
}

}  // namespace ppengine::runs::serving
