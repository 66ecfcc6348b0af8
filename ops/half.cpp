// Casts between f32 and f16.
#include <ppengine/ops/half.hpp>

#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/device/kernel_library.hpp>

namespace ppengine::ops {

HalfCasts::HalfCasts(Device& device)
    : narrow_(&device.kernels().get("half", "cast_f32_f16")), widen_(&device.kernels().get("half", "cast_f16_f32")) {}

void HalfCasts::narrow(Stream& stream, const float* src, void* dst, std::int64_t count) const {
  if (count <= 0) return;
  const Split split = split_elements(stream.device(), count);
  narrow_->launch(stream, split.groups, split.size, src, dst, count, split.chunk);
}

void HalfCasts::widen(Stream& stream, const void* src, float* dst, std::int64_t count) const {
  if (count <= 0) return;
  const Split split = split_elements(stream.device(), count);
  widen_->launch(stream, split.groups, split.size, src, dst, count, split.chunk);
}

}  // namespace ppengine::ops
