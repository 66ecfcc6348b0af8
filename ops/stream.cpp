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

bool is_done(const sycl::event& event) {
  return event.get_info<sycl::info::event::command_execution_status>() == sycl::info::event_command_status::complete;
}

}  // namespace

bool Event::done() const { return !impl_ || is_done(impl_->event); }

void Event::wait() const {
  if (impl_) sycl::event(impl_->event).wait_and_throw();
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
    ring[next].wait();
    ring[next] = event;
    next = (next + 1) % max_outstanding;
  }
  pending.clear();
  if (chained) pending.push_back(std::move(event));
}

void* Stream::Impl::scratch(size_t bytes) {
  if (bytes > scratch_memory.bytes()) {
    queue.wait_and_throw();
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
    impl_->queue.wait();
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
  if (impl_->chained && impl_->pending.size() == 1) return Event(std::make_shared<Event::Impl>(Event::Impl{impl_->pending.front()}));
  return Event(std::make_shared<Event::Impl>(Event::Impl{impl_->queue.ext_oneapi_submit_barrier(impl_->pending)}));
}

void Stream::wait_for(const Event& event) {
  if (!event.done()) impl_->pending.push_back(event.impl()->event);
}

void Stream::wait() {
  if (impl_->chained && !impl_->pending.empty()) {
    for (auto& event : impl_->pending) event.wait_and_throw();
    return;
  }
  impl_->queue.wait_and_throw();
}

}  // namespace ppengine::ops
