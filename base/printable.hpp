// Text from files, flags and the network, made fit for a terminal.
#pragma once

#include <string>
#include <string_view>

namespace ppengine {

// Control characters, with which text could colour, move or rewrite what a terminal shows, become '?'. Newlines and tabs stay.
std::string printable(std::string_view text);

}  // namespace ppengine
