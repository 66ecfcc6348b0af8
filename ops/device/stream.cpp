// Stream: work on a device in the order of submission.
#include <ppengine/ops/device/stream.hpp>

#include <cstring>
#include <mutex>
#include <thread>

#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops {

bool Command::done() const {
  return event.get_info<sycl::info::event::command_execution_status>() == sycl::info::event_command_status::complete;
}

// A thread that waits for a kernel on the CPU takes part in computing it: without it a kernel has one of two cores. But the OpenCL
// runtime seats as many threads as there are cores, its own included, and hands the wait of one that finds no seat to a seated thread,
// which may be in the middle of what is waited for: then nothing moves any more. So one thread of the process may wait inside the
// runtime, and the others look again now and then. For the same reason a host task never waits for a kernel.
namespace {
std::mutex seat;
}

void Command::wait(sycl::queue& queue) const {
  sycl::event waited = event;
  if (host_task || !queue.get_device().is_cpu()) return waited.wait();
  for (int looks = 0; !done(); ++looks) {
    if (const std::unique_lock lock(seat, std::try_to_lock); lock) return waited.wait();
    if (looks % 16 == 0) queue.ext_oneapi_prod();  // nobody else may have handed the kernel over
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

sycl::queue QueuePool::take(const sycl::device& device, const sycl::context& context) {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      sycl::queue queue = std::move(free_.back());
      free_.pop_back();
      return queue;
    }
  }
  if (!in_order_) return {context, device};
  return {context, device, sycl::property::queue::in_order()};
}

void QueuePool::give_back(sycl::queue queue) {
  const std::lock_guard lock(mutex_);
  free_.push_back(std::move(queue));
}

bool Event::done() const { return !impl_ || impl_->command.done(); }

void Event::wait() const {
  if (impl_) impl_->command.wait(impl_->queue);
}

bool Event::wait_until(std::chrono::steady_clock::time_point deadline) const {
  for (int looks = 0; !done(); ++looks) {
    if (looks % 16 == 0) impl_->queue.ext_oneapi_prod();
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  return true;
}

Stream::Impl::Impl(std::shared_ptr<Device> on)
    : device(std::move(on)),
      chained(device->info().is_cpu),
      max_outstanding(chained ? outstanding_on_cpus : outstanding_on_gpus),
      queue(device->impl().queues->take(device->impl().device, device->impl().context)) {
  if (const auto& engine = device->impl().engine) dnnl = dnnl::sycl_interop::make_stream(*engine, queue);
  ring.reserve(max_outstanding);
}

Stream::Impl::~Impl() { device->impl().queues->give_back(std::move(queue)); }

const std::vector<sycl::event>& Stream::Impl::host_task_dependencies() {
  launch_held_back();
  if (chained && kernels_pending) wait();
  return pending;
}

void Stream::Impl::submitted(Command command) {
  pending.clear();
  if (chained) pending.push_back(command.event);
  kernels_pending = !command.host_task;
  host_tasks_pending = command.host_task;
  host_tasks_kept += command.host_task ? 1 : 0;
  if (ring.size() < max_outstanding) {
    ring.push_back(std::move(command));
  } else {
    if (!ring[next].done()) {
      ++device->impl().waits;
      ring[next].wait(queue);
    }
    ring[next] = std::move(command);
    next = (next + 1) % max_outstanding;
  }
  if (host_tasks_kept >= most_host_tasks_kept) wait();  // a stream that nobody waits for
}

// The runtime keeps a weak pointer to the event of every host task, and with it the event's memory (about 400 bytes), until someone waits
// for the whole queue: 8 to 70 KB a training step. So that happens now and then, when everything is done and it costs nothing but the call.
// It goes into the runtime like any other wait, hence the seat. Where that is taken, the next wait tries again, until too many are kept:
// then it waits for the seat, whose holder waits for nothing of this stream, since all of that is done.
void Stream::Impl::forget_host_tasks() {
  if (host_tasks_kept < forget_from) return;
  std::unique_lock lock(seat, std::defer_lock);
  if (host_tasks_kept >= most_host_tasks_kept)
    lock.lock();
  else if (!lock.try_lock())
    return;
  queue.wait();
  host_tasks_kept = 0;
}

// From the oldest to the newest: what a kernel depends on is done before the kernel is waited for.
void Stream::Impl::wait() {
  launch_held_back();
  ++device->impl().waits;
  if (!chained) {  // in order: with the last one all are done
    if (!ring.empty()) ring[(next + ring.size() - 1) % ring.size()].wait(queue);
    ring.clear();
    next = 0;
    return queue.wait_and_throw();
  }
  for (std::size_t i = 0; i < ring.size(); ++i) ring[(next + i) % ring.size()].wait(queue);
  for (const sycl::event& event : pending) Command{event}.wait(queue);
  ring.clear();
  next = 0;
  pending.clear();
  kernels_pending = host_tasks_pending = false;
  forget_host_tasks();
}

void* Stream::Impl::scratch(std::size_t bytes) {
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

namespace {

// Copies and fills on a CPU, body(begin, end) over the bytes. Its memory is the host's, a launch costs more than most copies, and the
// OpenCL runtime books each of its copies under the pointer (RegisterUSMFreeWaitEvent, 40 bytes) until that memory is freed, 100 to 300
// bytes a training step for as long as it runs. So small ones run in the calling thread, like ops/cpu, and large ones as host tasks.
template <class Body>
void on_host(Stream::Impl& stream, std::size_t bytes, const Body& body) {
  constexpr std::int64_t at_once = 1 << 20;
  const auto count = static_cast<std::int64_t>(bytes);
  if (count <= at_once) {
    stream.wait();
    return body(std::int64_t{0}, count);
  }
  const auto& after = stream.host_task_dependencies();
  stream.submitted({stream.queue.submit([&](sycl::handler& handler) {
                      handler.depends_on(after);
                      handler.host_task([=] { cpu::for_parts(count, at_once, body); });
                    }),
                    true});
}

}  // namespace

void Stream::copy(void* dst, const void* src, std::size_t bytes) {
  if (bytes == 0 || dst == src) return;
  ++impl_->device->impl().copies;
  if (!impl_->chained) return impl_->submit([&](sycl::handler& handler) { handler.memcpy(dst, src, bytes); });
  on_host(*impl_, bytes, [=](std::int64_t begin, std::int64_t end) {
    std::memcpy(static_cast<std::byte*>(dst) + begin, static_cast<const std::byte*>(src) + begin, static_cast<std::size_t>(end - begin));
  });
}

void Stream::zero(void* dst, std::size_t bytes) {
  if (bytes == 0) return;
  ++impl_->device->impl().copies;
  if (!impl_->chained) return impl_->submit([&](sycl::handler& handler) { handler.memset(dst, 0, bytes); });
  on_host(*impl_, bytes, [=](std::int64_t begin, std::int64_t end) {
    std::memset(static_cast<std::byte*>(dst) + begin, 0, static_cast<std::size_t>(end - begin));
  });
}

Event Stream::record() {
  auto& impl = *impl_;
  impl.launch_held_back();
  if (impl.ring.empty() && impl.pending.empty()) return {};
  if (impl.chained && impl.host_tasks_pending && impl.pending.size() > 1) {  // a barrier would be held back as a kernel is
    impl.wait();
    return {};
  }
  impl.queue.ext_oneapi_prod();
  // In order: behind the last one all are done. A barrier behind no events would be one behind nothing.
  if (!impl.chained && impl.pending.empty()) {
    const Command& last = impl.ring[(impl.next + impl.ring.size() - 1) % impl.ring.size()];
    return Event(std::make_shared<Event::Impl>(Event::Impl{last, impl.queue}));
  }
  const bool is_one = impl.chained && impl.pending.size() == 1;
  Command command =
      is_one ? Command{impl.pending.front(), !impl.kernels_pending} : Command{impl.queue.ext_oneapi_submit_barrier(impl.pending)};
  return Event(std::make_shared<Event::Impl>(Event::Impl{std::move(command), impl.queue}));
}

void Stream::wait_for(const Event& event) {
  if (event.done()) return;
  impl_->launch_held_back();
  const Command& command = event.impl()->command;
  impl_->pending.push_back(command.event);
  (command.host_task ? impl_->host_tasks_pending : impl_->kernels_pending) = true;
}

void Stream::wait() { impl_->wait(); }

}  // namespace ppengine::ops
