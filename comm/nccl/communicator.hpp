// The communicator over lanes: NCCL, and oneCCL on the queues of GPUs, which has the same calls.
#pragma once

#include <ppengine/comm/nccl/api.hpp>
#include <ppengine/comm/process/module.hpp>

namespace ppengine::comm::nccl {

Communicator* make_communicator(const Api& api, const std::string& kind, const ModuleInput& input);

}  // namespace ppengine::comm::nccl
