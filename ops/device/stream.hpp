// Stream: work on a device, carried out in the order of submission, asynchronously to the caller.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include <ppengine/ops/device/device.hpp>

namespace ppengine::ops {

// A point in a stream's work. Default-constructed: already reached.
class Event {
 public:
  Event() = default;
  bool done() const;
  void wait() const;
  // False when the deadline passes first.
  bool wait_until(std::chrono::steady_clock::time_point deadline) const;

  struct Impl;
  explicit Event(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
};

class Stream {
 public:
  explicit Stream(std::shared_ptr<Device> device);
  ~Stream();
  Stream(Stream&&) noexcept;

  Device& device() const;
  const std::shared_ptr<Device>& device_ptr() const;

  // Asynchronous, in order. Host memory must stay valid until the work is done.
  void copy(void* dst, const void* src, std::size_t bytes);
  void zero(void* dst, std::size_t bytes);
  // What has been submitted so far, as an event that others can wait for.
  Event record();
  // Work submitted from now on starts after the event; the caller does not block.
  void wait_for(const Event& event);
  // Blocks until all is done; throws what failed on the device.
  void wait();

  struct Impl;  // ops/detail/sycl.hpp
  Impl& impl() const { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace ppengine::ops
