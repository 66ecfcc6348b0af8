// Enough file descriptors for oneCCL.
#pragma once

#include <fmt/core.h>
#include <sys/resource.h>

#include <ppengine/base/error.hpp>

namespace ppengine::comm::oneccl {

// oneCCL's key-value store polls an array of 300 descriptors. Where a process may not have as many, poll fails, the store's thread is
// silent about it, and all ranks wait for each other.
inline void allow_descriptors() {
  constexpr rlim_t polled = 300, wanted = 1024;
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur >= wanted) return;
  files.rlim_cur = files.rlim_max < wanted ? files.rlim_max : wanted;
  setrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_max < polled)
    throw ConfigError(
        fmt::format("a process may open {} files here, and oneCCL needs {}: allow more (ulimit -n 1024)", files.rlim_max, polled));
}

}  // namespace ppengine::comm::oneccl
