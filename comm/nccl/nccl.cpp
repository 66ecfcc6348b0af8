// The entry of the NCCL communicator's module.
#include <ppengine/base/error.hpp>
#include <ppengine/comm/nccl/communicator.hpp>

extern "C" ppengine::comm::Communicator* ppengine_make_communicator(const ppengine::comm::ModuleInput& input) {
  return ppengine::comm::nccl::make_communicator(ppengine::comm::nccl::Api::load(), "nccl", input);
}

extern "C" const char* ppengine_why_not() {
  static const std::string reason = []() -> std::string {
    try {
      ppengine::comm::nccl::Api::load();
      return {};
    } catch (const ppengine::Error& error) {
      return error.what();
    }
  }();
  return reason.empty() ? nullptr : reason.c_str();
}
