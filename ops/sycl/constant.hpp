// A small struct in device memory for kernels to read: the run-time compiler (2026.2) crashes on kernels that take structs by value.
#pragma once

#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops::own {

template <class T>
class Constant {
 public:
  Constant() = default;
  Constant(Device& device, const T& value) : context_(device.impl().context), device_(&device) {
    data_ = sycl::malloc_device<T>(1, device.impl().device, *context_);
    auto& queues = *device.impl().queues;
    sycl::queue queue = queues.take(device.impl().device, *context_);
    Command{queue.copy(&value, data_, 1)}.wait(queue);  // another rank's thread may be waiting for a kernel
    queues.give_back(std::move(queue));
    device.memory().add(sizeof(T));
  }
  Constant(Constant&& other) noexcept { swap(other); }
  Constant& operator=(Constant&& other) noexcept {
    swap(other);
    return *this;
  }
  ~Constant() {
    if (!data_) return;
    device_->memory().remove(sizeof(T));
    sycl::free(data_, *context_);
  }
  const T* data() const { return data_; }

 private:
  void swap(Constant& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
  }
  std::optional<sycl::context> context_;
  Device* device_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace ppengine::ops::own
