// The version of oneCCL that this was built for.
#include <ppengine/comm/versions.hpp>

#if __has_include(<oneapi/ccl/config.h>)
#include <fmt/core.h>
#include <oneapi/ccl/config.h>
#endif

namespace ppengine::comm {

std::string oneccl_version() {
#ifdef CCL_MAJOR_VERSION
  return fmt::format("{}.{}.{}", CCL_MAJOR_VERSION, CCL_MINOR_VERSION, CCL_UPDATE_VERSION);
#else
  return "none";
#endif
}

}  // namespace ppengine::comm
