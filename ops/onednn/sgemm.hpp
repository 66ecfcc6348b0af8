// oneDNN's sgemm on CPUs. Its matmul primitive reads and writes plain matrices in place, which costs up to half of the rate when a row is
// long (bench/linear_layouts.md); sgemm packs both operands as it goes, and has the same rate for every layout.
#pragma once

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/device/type.hpp>

namespace ppengine::ops::onednn {

inline bool has_sgemm(const Device& device, Type type) { return device.onednn() && device.info().is_cpu && type == Type::f32; }

// c[m,n] = op(a) · op(b) (+ c), row-major, f32.
struct Sgemm {
  bool transpose_a, transpose_b;
  std::int64_t m, n, k;
  const void* a;
  std::int64_t row_a;  // elements between rows as they lie in memory
  const void* b;
  std::int64_t row_b;
  void* c;
  std::int64_t row_c;
  bool accumulate;
};

// Runs in the calling thread, after what was submitted before it: on a CPU there is nobody else to give the work to.
inline void sgemm(Stream& stream, const Sgemm& g) {
  stream.impl().wait();
  const auto status =
      dnnl_sgemm(g.transpose_a ? 'T' : 'N', g.transpose_b ? 'T' : 'N', g.m, g.n, g.k, 1.0f, static_cast<const float*>(g.a), g.row_a,
                 static_cast<const float*>(g.b), g.row_b, g.accumulate ? 1.0f : 0.0f, static_cast<float*>(g.c), g.row_c);
  if (status != dnnl_success) throw DeviceError("dnnl_sgemm failed", ExitCode::failed);
}

}  // namespace ppengine::ops::onednn
