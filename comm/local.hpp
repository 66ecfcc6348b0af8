// The local communicator: ranks are threads of one process. Messages go straight from the sender's memory into the receiver's.
#pragma once

#include <memory>
#include <vector>

#include <ppengine/comm/communicator.hpp>

namespace ppengine::comm {

// A slower link for measurements: a message takes latency + bytes / bandwidth, one after the other per receiving rank.
struct SimulatedLink {
  double bytes_per_second = 0;  // 0: no limit
  std::chrono::microseconds latency{0};
  bool on() const { return bytes_per_second > 0 || latency.count() > 0; }
};

struct LocalOptions {
  // One per rank, or empty when all memory is the host's. Ranks may share a device.
  std::vector<std::shared_ptr<ops::Device>> devices;
  SimulatedLink link;
  std::chrono::milliseconds timeout = Communicator::default_timeout;
};

// One per rank, to be used by one thread each. Destroy it (or call wait on all that is pending) before the memory it was given:
// the destructor waits for copies under way.
std::vector<std::unique_ptr<Communicator>> make_local(int ranks, LocalOptions options = {});

}  // namespace ppengine::comm
