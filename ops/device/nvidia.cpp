// Options of the run-time compiler for NVIDIA devices.
#include <ppengine/ops/device/nvidia.hpp>

#include <fmt/core.h>

#include <charconv>
#include <mutex>

#include <ppengine/base/environment.hpp>
#include <ppengine/base/error.hpp>
#include <ppengine/base/log.hpp>
#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/architecture.hpp>
#include <ppengine/ops/device/nvidia_toolchain.hpp>

namespace ppengine::ops {
namespace {
namespace experimental = sycl::ext::oneapi::experimental;

constexpr const char* throwaway = R"(#include <sycl/sycl.hpp>
namespace experimental = sycl::ext::oneapi::experimental;
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((experimental::nd_range_kernel<1>)) void nothing(float* x) { *x = sycl::sqrt(*x); }
)";

}  // namespace

// SYCL's number has the architecture's digits behind the vendor: 0x01...8000, 0x02...090a00.
int architecture_of(const sycl::device& device) {
  const sycl::backend backend = device.get_backend();
  if (backend != sycl::backend::ext_oneapi_cuda && backend != sycl::backend::ext_oneapi_hip) return 0;
  try {
    const auto number = static_cast<std::uint64_t>(device.get_info<experimental::info::device::architecture>());
    if (backend == sycl::backend::ext_oneapi_hip) return static_cast<int>((number & 0xffffffffu) >> 8);
    const std::string digits = fmt::format("{:x}", (number & 0xffffffffu) >> 8);
    int architecture = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), architecture);
    return architecture;
  } catch (const sycl::exception&) {
    return 0;
  }
}

int nvidia_architecture(const Device& device) { return device.info().backend == "cuda" ? architecture_of(device.impl().device) : 0; }

bool has_tensor_cores(const Device& device) { return nvidia_architecture(device) >= 80; }

std::string ptx_feature(int architecture) {
  const int version = architecture >= 120   ? 87
                      : architecture >= 100 ? 86
                      : architecture >= 89  ? 78
                      : architecture >= 87  ? 74
                      : architecture >= 86  ? 71
                      : architecture >= 80  ? 70
                                            : 63;
  return fmt::format("+ptx{}", version);
}

std::vector<std::string> nvidia_options() {
  try {
    return nvidia_compile_options();
  } catch (const std::exception& e) {
    throw DeviceError(e.what());
  }
}

void prepare_for_nvidia(const Device& device) {
  if (device.impl().device.get_backend() != sycl::backend::ext_oneapi_cuda) return;
  static std::once_flag once;
  std::call_once(once, [&] {
    if (const int architecture = nvidia_architecture(device); architecture >= 75)
      environment::aim_nvidia_compiler(fmt::format("sm_{}", architecture), ptx_feature(architecture));
    auto source =
        experimental::create_kernel_bundle_from_source(device.impl().context, experimental::source_language::sycl, std::string(throwaway));
    experimental::build(source, experimental::properties{experimental::build_options{nvidia_options()}});
    log::debug(fmt::format("{}: the compiler for NVIDIA is ready ({})", device.info().name, nvidia_options().front()));
  });
}

}  // namespace ppengine::ops
