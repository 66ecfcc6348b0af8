// Any bytes as a chat template: only TemplateError may come out, in bounded time and memory.
#include <cstdint>
#include <string_view>

#include <ppengine/models/chat/chat_template.hpp>

using namespace ppengine::models;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto messages = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": "s"}, {"role": "user", "content": " hé "}, {"role": "assistant", "content": null, "tool_calls": []}])");
  if (size > 4096) return 0;
  try {
    const ChatTemplate parsed = ChatTemplate::parse({reinterpret_cast<const char*>(data), size}, "fuzz");
    static_cast<void>(parsed.render(messages, true));
  } catch (const TemplateError&) {
  }
  return 0;
}
