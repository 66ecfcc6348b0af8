// Streams and events: work runs when somebody waits for it, no sooner, and where several streams may run, in a random order.
#include <algorithm>
#include <chrono>

#include "machine.hpp"

namespace ppengine::standin {

void Machine::submit(Stream& stream, std::function<void()> work) { stream.work.push_back(std::move(work)); }

Result Machine::record(Stream& stream, const std::shared_ptr<Event>& event) {
  event->stream = &stream;
  const std::uint64_t which = ++event->records;
  submit(stream, [event, which] {
    event->reached = std::max(event->reached, which);
    event->milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
  });
  return devices[static_cast<std::size_t>(stream.device)].error;
}

// An event that was never recorded is nothing to wait for; a later record of it does not count.
void Machine::wait(Stream& stream, const std::shared_ptr<Event>& event) {
  if (event->records == event->reached) return;
  submit(stream, [this, event, wanted = event->records] {
    while (event->reached < wanted && event->stream && advance(*event->stream)) {
    }
  });
}

bool Machine::advance(Stream& stream) {
  if (stream.work.empty()) return false;
  const std::function<void()> next = std::move(stream.work.front());
  stream.work.pop_front();
  next();
  return true;
}

void Machine::finish(Stream& stream) {
  while (advance(stream)) {
  }
}

void Machine::finish_until(Event& event) {
  while (event.reached < event.records && event.stream && advance(*event.stream)) {
  }
}

void Machine::finish_all(int device) {
  auto& streams = devices[static_cast<std::size_t>(device)].streams;
  std::vector<Stream*> busy;
  for (;;) {
    busy.clear();
    for (const auto& stream : streams)
      if (!stream->work.empty()) busy.push_back(stream.get());
    if (busy.empty()) return;
    advance(*busy[random() % busy.size()]);
  }
}

}  // namespace ppengine::standin
