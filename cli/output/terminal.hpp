// What the terminal can show: colours, a line that is written over, its width.
#pragma once

namespace ppengine::cli {

// A terminal that moves its cursor: not a file, not a pipe, not TERM=dumb.
bool is_terminal(int descriptor);
// Such a terminal, and NO_COLOR is not set.
bool shows_colors(int descriptor);
// Columns of the terminal, or `otherwise` where it is none or does not say.
int terminal_width(int descriptor, int otherwise);

}  // namespace ppengine::cli
