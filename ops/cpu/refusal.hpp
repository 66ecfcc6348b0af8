// What the implementations of ops/cpu have in common. They run in the calling thread, after what was submitted before them: on a CPU
// there is nobody else to give the work to, and a launch costs as much as a small op.
#pragma once

#include <ppengine/ops/cpu/gemm.hpp>
#include <ppengine/ops/onednn/primitive.hpp>

namespace ppengine::ops::cpu {

// Why these would not serve an op. The switch that turns oneDNN off leaves SYCL kernels alone.
inline Refusal refusal(const Device& device, Type type) {
  if (auto reason = onednn::device_refusal(device)) return reason;
  if (!device.info().is_cpu) return "it is for CPUs";
  if (!has_vectors()) return "this CPU has none of SSE4, AVX2, AVX-512 and NEON";
  if (type != Type::f32) return "it is for f32";
  return {};
}

inline const float* floats(const void* values) { return static_cast<const float*>(values); }
inline float* floats(void* values) { return static_cast<float*>(values); }

}  // namespace ppengine::ops::cpu
