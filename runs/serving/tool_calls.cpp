// Calls of functions that a model writes.
#include <ppengine/runs/serving/tool_calls.hpp>

#include <fmt/core.h>

#include <optional>

namespace ppengine::runs::serving {
namespace {

std::optional<ToolCall> read_call(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return {};
  const char* field = json.contains("parameters") ? "parameters" : "arguments";
  return ToolCall{json["name"].get<std::string>(), json.contains(field) ? json[field].dump() : "{}"};
}

// References within a schema that becomes a part of another.
void move_references(Json& schema, const std::string& to) {
  if (schema.is_object() && schema.contains("$ref") && schema["$ref"].is_string())
    if (const std::string from = schema["$ref"].get<std::string>(); from.starts_with('#')) schema["$ref"] = to + from.substr(1);
  if (schema.is_structured())
    for (Json& each : schema) move_references(each, to);
}

}  // namespace

std::vector<ToolCall> find_calls(std::string_view text) {
  constexpr std::string_view end = "</tool_call>";
  std::vector<ToolCall> calls;
  for (std::size_t at = text.find(call_mark); at != text.npos; at = text.find(call_mark, at)) {
    at += call_mark.size();
    const auto call = read_call(text.substr(at, text.find(end, at) - at));
    if (!call) return {};
    calls.push_back(*call);
  }
  return calls;
}

std::vector<ToolCall> forced_call(std::string_view text) {
  const auto call = read_call(text);
  return call ? std::vector{*call} : std::vector<ToolCall>();
}

Json arguments_schema(const Json& tool) {
  const Json& function = tool["function"];
  return function.contains("parameters") && function["parameters"].is_object() && !function["parameters"].empty()
             ? function["parameters"]
             : Json{{"type", "object"}, {"properties", Json::object()}, {"additionalProperties", false}};  // takes nothing
}

Json tools_schema(const Json& tools) {
  Json options = Json::array();
  for (std::size_t i = 0; i < tools.size(); ++i) {
    Json arguments = arguments_schema(tools[i]);
    move_references(arguments, fmt::format("#/anyOf/{}/properties/arguments", i));
    options.push_back({{"type", "object"},
                       {"properties", {{"name", {{"const", tools[i]["function"]["name"]}}}, {"arguments", std::move(arguments)}}},
                       {"required", {"name", "arguments"}}});
  }
  return {{"anyOf", std::move(options)}};
}

Json calls_json(const std::vector<ToolCall>& calls, const std::string& id, bool streamed) {
  Json list = Json::array();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    Json one = Json::object();
    if (streamed) one["index"] = i;
    one["id"] = fmt::format("call_{}_{}", id.substr(id.find('-') + 1), i);
    one["type"] = "function";
    one["function"] = {{"name", calls[i].name}, {"arguments", calls[i].arguments}};
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace ppengine::runs::serving
