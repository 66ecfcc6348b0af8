// What the terminal can show.
#include "output/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace ppengine::cli {

bool is_terminal(int descriptor) {
  const char* kind = std::getenv("TERM");
  return isatty(descriptor) != 0 && !(kind && std::string_view(kind) == "dumb");
}

bool shows_colors(int descriptor) {
  const char* no_color = std::getenv("NO_COLOR");
  return is_terminal(descriptor) && !(no_color && *no_color);
}

int terminal_width(int descriptor, int otherwise) {
  winsize size{};
  return isatty(descriptor) != 0 && ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : otherwise;
}

}  // namespace ppengine::cli
