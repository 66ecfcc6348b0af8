// Any bytes as the body of a request: only ApiError may come out, and its body is JSON. A schema in it becomes a grammar, or is refused.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <ppengine/base/error.hpp>
#include <ppengine/runs/constraint/json_schema.hpp>
#include <ppengine/runs/serving/api.hpp>

using namespace ppengine::runs::serving;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const bool chat : {false, true}) {
    try {
      const CompletionRequest request = parse_completion(parse_body({reinterpret_cast<const char*>(data), size}), chat);
      if (!request.schema.empty()) static_cast<void>(ppengine::runs::constraint::schema_grammar(Json::parse(request.schema)));
      if (request.n < 1 || (chat ? !request.messages.is_array() : request.prompts.empty())) std::abort();
    } catch (const ppengine::ConfigError&) {  // the schema's
    } catch (const ApiError& error) {
      if (error.status != 400 || !Json::accept(error.body())) std::abort();
    }
  }
  return 0;
}
