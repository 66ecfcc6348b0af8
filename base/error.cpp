// Errors by audience.
#include <ppengine/base/error.hpp>

#include <fmt/core.h>

namespace ppengine {

CommError::CommError(int peer, const std::string& operation, int tag, const std::string& what)
    : Error(fmt::format("{} with rank {} (tag {}): {}", operation, peer, tag, what), ExitCode::peer_lost),
      peer_(peer),
      operation_(operation),
      tag_(tag) {}

void invariant_failed(const char* condition, const char* file, int line) {
  throw Error(fmt::format("internal error: {} does not hold at {}:{}; please report this", condition, file, line));
}

}  // namespace ppengine
