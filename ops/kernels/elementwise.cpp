// Elementwise kernels: copies with a cast.
#include "common.hpp"

KERNEL_1D cast_f32_to_bf16(const float* src, bf16* dst, long count) {
  const long i = item_1d().get_global_linear_id();
  if (i < count) dst[i] = bf16(src[i]);
}
