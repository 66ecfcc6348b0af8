// HostOutput: what a forward has computed, as f32 on the host.
#pragma once

#include <span>
#include <vector>

#include <ppengine/ops/device/memory.hpp>
#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/tensor.hpp>

namespace ppengine::engine {

class HostOutput {
 public:
  HostOutput(std::shared_ptr<ops::Device> device, ops::MemoryCounter& counter) : device_(std::move(device)), counter_(counter) {}
  // Waits for the stream. Valid until the next call, and no longer than the tensor: where the host sees that memory and it holds f32, this
  // is it.
  std::span<float> read(const ops::Tensor& tensor, ops::Stream& stream);

 private:
  std::shared_ptr<ops::Device> device_;
  ops::MemoryCounter& counter_;
  ops::Buffer wide_;
  std::vector<float> host_;
};

}  // namespace ppengine::engine
