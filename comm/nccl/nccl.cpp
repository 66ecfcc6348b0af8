// The entry of the communicator's modules: NCCL for NVIDIA, and compiled once more as RCCL for AMD.
#include <ppengine/base/error.hpp>
#include <ppengine/comm/nccl/communicator.hpp>

namespace {
using ppengine::comm::nccl::Api;
#ifdef PPENGINE_RCCL
constexpr auto& vendor = Api::amd;
constexpr const char* kind = "rccl";
#else
constexpr auto& vendor = Api::nvidia;
constexpr const char* kind = "nccl";
#endif
}  // namespace

extern "C" ppengine::comm::Communicator* ppengine_make_communicator(const ppengine::comm::ModuleInput& input) {
  return ppengine::comm::nccl::make_communicator(Api::load(vendor), kind, input);
}

extern "C" const char* ppengine_why_not() {
  static const std::string reason = []() -> std::string {
    try {
      Api::load(vendor);
      return {};
    } catch (const ppengine::Error& error) {
      return error.what();
    }
  }();
  return reason.empty() ? nullptr : reason.c_str();
}
