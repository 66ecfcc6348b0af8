// Calls of functions that a model writes: how a request forces one, and how they are found in a text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ppengine/runs/serving/api.hpp>

namespace ppengine::runs::serving {

struct ToolCall {
  std::string name, arguments;  // arguments as JSON
};

// Where a call begins in the text of the models that mark them.
inline constexpr std::string_view call_mark = "<tool_call>";

// The calls of a text: <tool_call>{"name": ..., "arguments": {...}}</tool_call>, any number of them. None where one is broken.
std::vector<ToolCall> find_calls(std::string_view text);
// The one call of a text that tools_schema() has forced: {"name": ..., "arguments": {...}}.
std::vector<ToolCall> forced_call(std::string_view text);

// The schema of a call of any of the tools, and that of the arguments of one of them.
Json tools_schema(const Json& tools);
Json arguments_schema(const Json& tool);

// As OpenAI's clients read them. `id` is that of the answer; streamed ones have an index.
Json calls_json(const std::vector<ToolCall>& calls, const std::string& id, bool streamed);

}  // namespace ppengine::runs::serving
