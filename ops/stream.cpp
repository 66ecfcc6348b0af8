// Stream: work on a device in the order of submission.
#include <ppengine/ops/stream.hpp>

#include <thread>

#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops {
namespace {

sycl::queue make_queue(const Device::Impl& device, bool chained) {
  if (chained) return {device.context, device.device};
  return {device.context, device.device, sycl::property::queue::in_order()};
}

using Status = sycl::info::event_command_status;

Status status_of(const sycl::event& event) { return event.get_info<sycl::info::event::command_execution_status>(); }

bool is_done(const sycl::event& event) { return status_of(event) == Status::complete; }

// Blocks until a command has finished. A thread that waits for a kernel on the CPU takes part in computing it (without it the kernel
// has half of two cores), but only a kernel that has begun may be waited for: the OpenCL runtime can lose the wake-up, and hang for
// good, when another thread (SYCL's, after a host task of oneDNN) is just handing the kernel over. So it polls until then, and flushes
// the queue now and then, since nobody else may have.
void wait_for_command(sycl::event event, sycl::queue* queue) {
  for (int spins = 1;; ++spins) {
    const Status status = status_of(event);
    if (status == Status::complete) break;
    if (status == Status::running) {
      event.wait();
      break;
    }
    if (queue && spins % 32 == 0) queue->ext_oneapi_prod();
    if (spins < 64)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

bool Event::done() const { return !impl_ || is_done(impl_->event); }

void Event::wait() const {
  if (impl_) wait_for_command(impl_->event, nullptr);
}

bool Event::wait_until(std::chrono::steady_clock::time_point deadline) const {
  while (!done()) {
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

Stream::Impl::Impl(std::shared_ptr<Device> on)
    : device(std::move(on)), chained(device->info().is_cpu), queue(make_queue(device->impl(), chained)) {
  if (device->onednn()) dnnl = dnnl::sycl_interop::make_stream(*device->impl().engine, queue);
  ring.reserve(max_outstanding);
}

void Stream::Impl::submitted(sycl::event event) {
  if (ring.size() < max_outstanding) {
    ring.push_back(event);
  } else {
    wait_for_command(ring[next], &queue);
    ring[next] = event;
    next = (next + 1) % max_outstanding;
  }
  pending.clear();
  if (chained) pending.push_back(std::move(event));
}

// From the oldest to the newest: the waiting thread helps with each kernel on the way.
void Stream::Impl::wait() {
  for (size_t i = 0; i < ring.size(); ++i) wait_for_command(ring[(next + i) % ring.size()], &queue);
  for (const sycl::event& event : pending) wait_for_command(event, &queue);
  if (!chained) queue.wait_and_throw();
}

void* Stream::Impl::scratch(size_t bytes) {
  if (bytes > scratch_memory.bytes()) {
    wait();
    scratch_memory = Buffer();
    scratch_memory = Buffer(device, bytes);
  }
  return scratch_memory.data();
}

Stream::Stream(std::shared_ptr<Device> device) : impl_(std::make_unique<Impl>(std::move(device))) {}
Stream::Stream(Stream&&) noexcept = default;

Stream::~Stream() {
  if (!impl_) return;
  try {
    impl_->wait();
  } catch (const std::exception&) {  // already reported by whoever waited; a destructor must not throw
  }
}

Device& Stream::device() const { return *impl_->device; }
const std::shared_ptr<Device>& Stream::device_ptr() const { return impl_->device; }

void Stream::copy(void* dst, const void* src, size_t bytes) {
  if (bytes == 0 || dst == src) return;
  impl_->submit([&](sycl::handler& handler) { handler.memcpy(dst, src, bytes); });
}

void Stream::zero(void* dst, size_t bytes) {
  if (bytes == 0) return;
  impl_->submit([&](sycl::handler& handler) { handler.memset(dst, 0, bytes); });
}

Event Stream::record() {
  if (impl_->ring.empty()) return {};
  impl_->queue.ext_oneapi_prod();  // whoever waits for the event cannot flush this queue
  if (impl_->chained && impl_->pending.size() == 1) return Event(std::make_shared<Event::Impl>(Event::Impl{impl_->pending.front()}));
  return Event(std::make_shared<Event::Impl>(Event::Impl{impl_->queue.ext_oneapi_submit_barrier(impl_->pending)}));
}

void Stream::wait_for(const Event& event) {
  if (!event.done()) impl_->pending.push_back(event.impl()->event);
}

void Stream::wait() { impl_->wait(); }

}  // namespace ppengine::ops
