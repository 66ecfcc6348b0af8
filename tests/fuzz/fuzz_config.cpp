// Any bytes as config.json: only FileError may come out, and what is read can be computed with and written again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <ppengine/base/error.hpp>
#include <ppengine/models/config.hpp>

using namespace ppengine::models;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ModelConfig config = parse_config({reinterpret_cast<const char*>(data), size}, "config.json");
    if (config.width() <= 0 || config.layers() <= 0) std::abort();
    if (config.decoder() && config.decoder()->head_size < 1024) rope_inverse_frequencies(*config.decoder(), config.decoder()->rope, 100);
    parse_config(config_json(config, "float32"), "config.json");
    if (config.decoder() && config.family_name() != std::string_view("llama")) return 0;
    const ModelConfig made = config.gpt2() ? make_config(*config.gpt2()) : make_config(*config.decoder());
    const ModelConfig again = parse_config(made.source, "config.json");
    if (again.width() != config.width() || again.tied_head() != config.tied_head()) std::abort();
  } catch (const ppengine::FileError&) {
  }
  return 0;
}
