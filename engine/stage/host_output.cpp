// HostOutput: the result of a forward as f32 on the host.
#include <ppengine/engine/stage/host_output.hpp>

#include <ppengine/ops/elementwise.hpp>

namespace ppengine::engine {

std::span<float> HostOutput::read(const ops::Tensor& tensor, ops::Stream& stream) {
  const auto count = static_cast<std::size_t>(tensor.count());
  const bool wide = tensor.type == ops::Type::f32;
  if (wide && device_->info().is_cpu) {
    stream.wait();
    return {static_cast<float*>(tensor.data), count};
  }
  host_.resize(count);
  const void* from = tensor.data;
  const std::size_t bytes = count * sizeof(float);
  if (!wide) {
    if (wide_.bytes() < bytes) wide_ = ops::Buffer(device_, bytes, &counter_);
    ops::cast(stream, tensor.type, tensor.data, ops::Type::f32, wide_.data(), tensor.count());
    from = wide_.data();
  }
  stream.copy(host_.data(), from, bytes);
  stream.wait();
  return host_;
}

}  // namespace ppengine::engine
