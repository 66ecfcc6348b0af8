// Streams and events.
#include "api.hpp"

namespace {
using namespace ppengine::standin;
const std::shared_ptr<Event>& event_of(void* handle) { return static_cast<EventHandle*>(handle)->event; }
Result error_of(const Stream& stream) { return Machine::get().devices[static_cast<std::size_t>(stream.device)].error; }
}  // namespace

STANDIN_API cuStreamCreate(void** stream, unsigned) {
  if (current_device < 0) return invalid_context;
  const std::lock_guard lock(Machine::get().mutex);
  auto& streams = Machine::get().devices[static_cast<std::size_t>(current_device)].streams;
  streams.push_back(std::make_unique<Stream>());
  streams.back()->device = current_device;
  return *stream = streams.back().get(), success;
}
STANDIN_API cuStreamCreateWithPriority(void** stream, unsigned flags, int) { return cuStreamCreate(stream, flags); }
STANDIN_API cuStreamDestroy_v2(void* stream) {  // its work is still done; events may name it later, so it stays
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().finish(stream_of(stream));
  return success;
}
STANDIN_API cuStreamSynchronize(void* stream) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().finish(stream_of(stream));
  return error_of(stream_of(stream));
}
// Whoever asks again and again must see it end: each question does one piece of work.
STANDIN_API cuStreamQuery(void* stream) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().advance(stream_of(stream));
  return stream_of(stream).work.empty() ? error_of(stream_of(stream)) : not_ready;
}
STANDIN_API cuStreamWaitEvent(void* stream, void* event, unsigned) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().wait(stream_of(stream), event_of(event));
  return success;
}
STANDIN_API cuStreamGetFlags(void*, unsigned* flags) { return *flags = 0, success; }

STANDIN_API cuEventCreate(void** event, unsigned) { return *event = new EventHandle, success; }
STANDIN_API cuEventDestroy_v2(void* event) {
  delete static_cast<EventHandle*>(event);
  return success;
}
STANDIN_API cuEventRecord(void* event, void* stream) {
  const std::lock_guard lock(Machine::get().mutex);
  return Machine::get().record(stream_of(stream), event_of(event));
}
STANDIN_API cuEventSynchronize(void* event) {
  const std::lock_guard lock(Machine::get().mutex);
  Machine::get().finish_until(*event_of(event));
  return event_of(event)->stream ? error_of(*event_of(event)->stream) : success;
}
STANDIN_API cuEventQuery(void* event) {
  const std::lock_guard lock(Machine::get().mutex);
  Event& asked = *event_of(event);
  if (asked.reached < asked.records && asked.stream) Machine::get().advance(*asked.stream);
  return asked.reached < asked.records ? not_ready : success;
}
STANDIN_API cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
  return *milliseconds = static_cast<float>(event_of(to)->milliseconds - event_of(from)->milliseconds), success;
}
