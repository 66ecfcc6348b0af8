// A small struct in device memory for kernels to read: the run-time compiler (2026.2) crashes on kernels that take structs by value.
#pragma once

#include <ppengine/ops/detail/sycl.hpp>

namespace ppengine::ops::own {

template <class T>
class Constant {
 public:
  Constant() = default;
  Constant(Device& device, const T& value) : device_(&device) {
    auto& impl = device.impl();
    data_ = sycl::malloc_device<T>(1, impl.device, impl.context);
    auto& queues = *impl.queues;
    sycl::queue queue = queues.take(impl.device, impl.context);
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
    sycl::free(data_, device_->impl().context);
  }
  const T* data() const { return data_; }

 private:
  void swap(Constant& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
  }
  Device* device_ = nullptr;
  T* data_ = nullptr;
};

}  // namespace ppengine::ops::own
