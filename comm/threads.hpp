// Ranks as threads of this process: runs a function once per rank and brings back the error that came first.
#pragma once

#include <functional>

#include <ppengine/comm/local.hpp>

namespace ppengine::comm {

// Blocks until all ranks have returned. When one throws, the others' waits end at once; the error of the rank that failed first is
// thrown here.
void run_threads(int ranks, const LocalOptions& options, const std::function<void(Communicator&)>& body);

}  // namespace ppengine::comm
