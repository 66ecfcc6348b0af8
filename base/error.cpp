// Errors by audience.
#include <ppengine/base/error.hpp>

#include <fmt/core.h>

namespace ppengine {
namespace {

// Above are messages that are no part of a plan (gradients of weights that stages share): their numbers tell nobody anything.
constexpr int first_internal_tag = 1 << 28;

}  // namespace

CommError::CommError(int peer, const std::string& operation, int tag, const std::string& reason)
    : Error(fmt::format("{}{}{}: {}", operation, peer < 0 ? "" : fmt::format(" with rank {}", peer),
                        tag < 0 || tag >= first_internal_tag ? "" : fmt::format(" (tag {})", tag), reason),
            ExitCode::peer_lost),
      peer_(peer),
      operation_(operation),
      tag_(tag),
      reason_(reason) {}

void invariant_failed(const char* condition, const char* file, int line) {
  throw Error(fmt::format("internal error: {} does not hold at {}:{}; please report this", condition, file, line));
}

}  // namespace ppengine
