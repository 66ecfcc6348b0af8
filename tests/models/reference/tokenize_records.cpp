// Encodes and decodes records from stdin for compare_tokenizers.py: a length and as many bytes of text in; the ids with and
// without special tokens, the decoded texts, and the text put together by the stream decoder out.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <ppengine/models/tokenizer/tokenizer.hpp>

using namespace ppengine::models;

namespace {

void put(const void* data, std::size_t bytes) { std::fwrite(data, 1, bytes, stdout); }
void put_text(const std::string& text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  put(&size, 4);
  put(text.data(), size);
}
void put_ids(const std::vector<std::int32_t>& ids) {
  const auto size = static_cast<std::uint32_t>(ids.size());
  put(&size, 4);
  put(ids.data(), 4 * ids.size());
}

}  // namespace

int main(int, char** argv) {
  const Tokenizer tokenizer = Tokenizer::load(argv[1]);
  std::uint32_t size = 0;
  while (std::fread(&size, 4, 1, stdin) == 1) {
    std::string text(size, '\0');
    if (std::fread(text.data(), 1, size, stdin) != size) return 1;
    const auto ids = tokenizer.encode(text, true);
    put_ids(ids);
    put_ids(tokenizer.encode(text, false));
    put_text(tokenizer.decode(ids, true));
    put_text(tokenizer.decode(ids, false));
    StreamDecoder stream(tokenizer, true);
    std::string streamed;
    for (std::int32_t id : ids) streamed += stream.push(id);
    put_text(streamed + stream.finish());
  }
}
