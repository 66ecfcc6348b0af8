// Ranks as threads of a test, all on one device.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ppengine/comm/threads.hpp>

namespace ppengine::test {

inline void on_ranks(int ranks, const std::shared_ptr<ops::Device>& device, const std::function<void(comm::Communicator&)>& body) {
  comm::LocalOptions local;
  local.devices.assign(static_cast<std::size_t>(ranks), device);
  comm::run_threads(ranks, local, body);
}

}  // namespace ppengine::test
