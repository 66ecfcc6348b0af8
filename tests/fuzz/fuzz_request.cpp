// Any bytes as the body of a request: only ApiError may come out, and its body is JSON.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <ppengine/runs/serving/api.hpp>

using namespace ppengine::runs::serving;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  for (const bool chat : {false, true}) {
    try {
      const CompletionRequest request = parse_completion(parse_body({reinterpret_cast<const char*>(data), size}), chat);
      if (request.n < 1 || (chat ? !request.messages.is_array() : request.prompts.empty())) std::abort();
    } catch (const ApiError& error) {
      if (error.status != 400 || !Json::accept(error.body())) std::abort();
    }
  }
  return 0;
}
