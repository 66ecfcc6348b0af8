// A rank that fails tells the others before it frees anything.
#pragma once

#include <exception>

#include <ppengine/comm/communicator.hpp>

namespace ppengine::comm {

// Does a part of a rank's work. What it throws ends the run for all ranks first (peers may be null): others wait for messages that will
// not come, and messages on their way still use memory that goes as the error leaves the objects that own it.
template <class Work>
auto abort_on_error(Communicator* peers, Work&& work) {
  try {
    return work();
  } catch (const std::exception& error) {
    if (peers) peers->abort(error.what());
    throw;
  }
}

}  // namespace ppengine::comm
