// Text made fit for a terminal.
#include <ppengine/base/printable.hpp>

namespace ppengine {

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool ascii = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    // U+0080 to U+009F, of which U+009B begins a sequence as ESC [ does.
    const bool latin = byte == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) >= 0x80 &&
                       static_cast<unsigned char>(text[i + 1]) <= 0x9f;
    result += ascii || latin ? '?' : text[i];
    if (latin) ++i;
  }
  return result;
}

}  // namespace ppengine
