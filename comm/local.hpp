// The local communicator: ranks are threads of one process. Messages go straight from the sender's memory into the receiver's.
#pragma once

#include <memory>
#include <vector>

#include <ppengine/comm/threads.hpp>

namespace ppengine::comm {

// One per rank, to be used by one thread each. Destroy it (or call wait on all that is pending) before the memory it was given:
// the destructor waits for copies under way.
std::vector<std::unique_ptr<Communicator>> make_local(int ranks, LocalOptions options = {});

}  // namespace ppengine::comm
