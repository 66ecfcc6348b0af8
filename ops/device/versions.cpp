// Versions of SYCL and oneDNN in use.
#include <ppengine/ops/device/versions.hpp>

#include <fmt/core.h>
#include <oneapi/dnnl/dnnl.h>
#include <sycl/version.hpp>

namespace ppengine::ops {

std::string sycl_version() {
  return fmt::format("{}.{}.{} (compiler {})", __LIBSYCL_MAJOR_VERSION, __LIBSYCL_MINOR_VERSION, __LIBSYCL_PATCH_VERSION,
                     __SYCL_COMPILER_VERSION);
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

}  // namespace ppengine::ops
