// Device memory: buffers with an owner, counted; arenas that hand out ranges of one buffer.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace ppengine::ops {

class Device;

// Bytes in use and their peak. Counters form a tree: what a rank allocates counts for its device too.
class MemoryCounter {
 public:
  explicit MemoryCounter(MemoryCounter* parent = nullptr) : parent_(parent) {}
  void add(std::size_t bytes);
  void remove(std::size_t bytes);
  std::size_t bytes() const { return bytes_; }
  std::size_t peak() const { return peak_; }
  std::size_t allocations() const { return allocations_; }  // how many there ever were: constant in a steady step
  void reset_peak() { peak_ = bytes_.load(); }

 private:
  MemoryCounter* parent_;
  std::atomic<std::size_t> bytes_{0}, peak_{0}, allocations_{0};
};

// Memory on a device, freed by its destructor. Aligned to 64 bytes.
class Buffer {
 public:
  Buffer() = default;
  // counter: counts in addition to the device's own (a rank's, say).
  Buffer(std::shared_ptr<Device> device, std::size_t bytes, MemoryCounter* counter = nullptr);
  ~Buffer();
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }

  void* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(data_) + offset; }

  // Memory of the same device and size: the two can change places, whoever counts them.
  bool can_trade(const Buffer& other) const { return device_ == other.device_ && bytes_ == other.bytes_; }
  void trade(Buffer& other) noexcept { std::swap(data_, other.data_); }

 private:
  void swap(Buffer& other) noexcept;
  std::shared_ptr<Device> device_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  MemoryCounter* counter_ = nullptr;
};

constexpr std::size_t buffer_alignment = 64;
constexpr std::size_t align_up(std::size_t bytes, std::size_t to = buffer_alignment) { return (bytes + to - 1) / to * to; }

}  // namespace ppengine::ops
