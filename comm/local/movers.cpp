// Movers: copies of memory between ranks that are threads.
#include <ppengine/comm/local/movers.hpp>

#include <algorithm>
#include <cstring>

namespace ppengine::comm::local {

ops::Event CopyStreams::copy(void* dst, const void* src, std::size_t bytes, const ops::Event& first, const ops::Event& second) {
  const std::lock_guard lock(mutex_);
  auto lane = std::ranges::find_if(lanes_, [](const Lane& one) { return one.last.done(); });
  if (lane == lanes_.end()) {
    if (lanes_.size() < max_streams) lanes_.push_back({ops::Stream(device_), {}});
    lane = lanes_.begin() + static_cast<std::ptrdiff_t>(lanes_.size() < max_streams ? lanes_.size() - 1 : next_++ % max_streams);
  }
  lane->stream.wait_for(first);
  lane->stream.wait_for(second);
  lane->stream.copy(dst, src, bytes);
  lane->last = lane->stream.record();
  return lane->last;
}

Worker::~Worker() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    job = nullptr;  // frees what it holds before the lock is taken again
    lock.lock();
  }
}

bool Mover::host_accessible() const { return !device || device->info().is_cpu; }

void Mover::fetch(void* host, const void* src, std::size_t bytes) {
  if (host_accessible()) {
    std::memcpy(host, src, bytes);
    return;
  }
  copies->copy(host, src, bytes, {}, {}).wait();
}

void Mover::store(void* dst, const void* host, std::size_t bytes) {
  if (host_accessible()) {
    std::memcpy(dst, host, bytes);
    return;
  }
  copies->copy(dst, host, bytes, {}, {}).wait();
}

void Mover::pass_link(const SimulatedLink& link, std::size_t bytes, int messages) {
  if (!link.on()) return;
  auto taken = link.latency * messages + std::chrono::microseconds(0);
  if (link.bytes_per_second > 0)
    taken += std::chrono::microseconds(static_cast<std::int64_t>(1e6 * static_cast<double>(bytes) / link.bytes_per_second));
  link_free = std::max(link_free, Clock::now()) + taken;
  std::this_thread::sleep_until(link_free);
}

}  // namespace ppengine::comm::local
