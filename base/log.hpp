// Logging with levels, to stderr. Results never go through here: they belong on stdout.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace ppengine::log {

enum class Level { error, warning, info, debug, off };

void set_level(Level level);
Level level();
// Parses error|warning|info|debug|off; throws ConfigError for anything else.
Level parse_level(std::string_view name);

// Programs that embed the engine may take the lines over. The default writes "ppengine: ..." to stderr.
using Sink = std::function<void(Level, std::string_view)>;
void set_sink(Sink sink);

void write(Level level, std::string_view text);
inline void error(std::string_view text) { write(Level::error, text); }
inline void warning(std::string_view text) { write(Level::warning, text); }
inline void info(std::string_view text) { write(Level::info, text); }
inline void debug(std::string_view text) { write(Level::debug, text); }

}  // namespace ppengine::log
