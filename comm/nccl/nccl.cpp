// The entry of the NCCL communicator's module.
#include <ppengine/base/error.hpp>
#include <ppengine/comm/nccl/communicator.hpp>
#include <ppengine/ops/device/device.hpp>

extern "C" ppengine::comm::Communicator* ppengine_make_communicator(const ppengine::comm::ModuleInput& input) {
  const auto& device = input.options.device;
  return ppengine::comm::nccl::make_communicator(ppengine::comm::nccl::Api::load(device ? device->info().backend : "cuda"), "nccl", input);
}

extern "C" const char* ppengine_why_not() {
  static const std::string reason = []() -> std::string {
    try {
      ppengine::comm::nccl::Api::load("cuda");
      return {};
    } catch (const ppengine::Error& error) {
      return error.what();
    }
  }();
  return reason.empty() ? nullptr : reason.c_str();
}
