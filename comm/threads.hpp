// Ranks as threads of this process: runs a function once per rank and brings back the error that came first.
#pragma once

#include <chrono>
#include <functional>
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

// Blocks until all ranks have returned. When one throws, the others' waits end at once; the error of the rank that failed first is
// thrown here.
void run_threads(int ranks, const LocalOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace ppengine::comm
