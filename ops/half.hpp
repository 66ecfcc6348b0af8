// Casts between f32 and f16, for messages: nothing is computed in f16.
#pragma once

#include <cstdint>

#include <ppengine/ops/device/stream.hpp>

namespace ppengine::ops {

struct Kernel;

class HalfCasts {
 public:
  explicit HalfCasts(Device& device);  // builds the kernels
  void narrow(Stream& stream, const float* src, void* dst, std::int64_t count) const;
  void widen(Stream& stream, const void* src, float* dst, std::int64_t count) const;

 private:
  const Kernel *narrow_, *widen_;  // the device's
};

}  // namespace ppengine::ops
