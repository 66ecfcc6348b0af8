// Any bytes as tokenizer.json, and after a NUL as text: only our own errors may come out, decoded text is valid UTF-8. The
// stream decoder gives valid UTF-8 too.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/models/tokenizer/detail/utf8.hpp>
#include <ppengine/models/tokenizer/tokenizer.hpp>

using namespace ppengine::models;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ppengine::log::set_level(ppengine::log::Level::off);
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t end = std::min(input.find('\0'), size);
  const std::string text = "Hello, wörld 123\r\n  it's <s>ab</s>\xF0\x9F\x98\x80 \xFF" + std::string(input.substr(end));
  try {
    const Tokenizer made = Tokenizer::parse(input.substr(0, end), "tokenizer.json");
    const auto ids = made.encode(text.substr(0, 2000));
    const std::string decoded = made.decode(ids);
    if (!tokenizer::is_valid_utf8(decoded)) std::abort();
    StreamDecoder stream(made);
    std::string streamed;
    for (std::int32_t id : ids) streamed += stream.push(id);
    streamed += stream.finish();
    if (!tokenizer::is_valid_utf8(streamed)) std::abort();
  } catch (const ppengine::Error&) {
  }
  return 0;
}
