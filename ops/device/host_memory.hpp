// HostMemory: memory of the host that a GPU copies from and to by itself.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include <ppengine/ops/device/device.hpp>

namespace ppengine::ops {

// Pinned memory, handed out piece by piece until it is taken back as a whole. A copy from or to other memory of the host makes a driver
// copy once more, and the caller wait for it. Grows while more is taken than ever before.
class HostMemory {
 public:
  explicit HostMemory(std::shared_ptr<Device> device);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;

  std::byte* take(std::size_t bytes);
  // What was taken may be handed out again: no copy of it is under way any more.
  void take_back();

 private:
  struct Block {
    std::byte* data;
    std::size_t bytes, used;
  };
  std::shared_ptr<Device> device_;
  std::vector<Block> blocks_;
};

}  // namespace ppengine::ops
