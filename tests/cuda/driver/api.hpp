// What the functions of the stand-in driver share. Handles are pointers to the machine's own objects; contexts are device numbers, from 1.
#pragma once

#include "machine.hpp"

#define STANDIN_API extern "C" [[gnu::visibility("default")]] int

namespace ppengine::standin {

inline thread_local int current_device = -1;  // of the calling thread's context

struct EventHandle {
  std::shared_ptr<Event> event = std::make_shared<Event>();
};

// Null is the default stream of the current context.
inline Stream& stream_of(void* handle) {
  if (handle) return *static_cast<Stream*>(handle);
  return *Machine::get().devices[static_cast<std::size_t>(current_device < 0 ? 0 : current_device)].streams.front();
}

}  // namespace ppengine::standin
