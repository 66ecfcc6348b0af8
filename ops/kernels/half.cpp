// Casts between f32 and f16, in integer arithmetic: not every device has f16, and none computes in it here. Rounds to nearest, even.
#include "common.hpp"
#include "values.hpp"

inline unsigned short to_half(float x) {
  const unsigned bits = sycl::bit_cast<unsigned>(x);
  const unsigned sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<unsigned short>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<unsigned short>(sign | 0x7c00u);  // rounds to infinity
  if (magnitude >= 0x38800000u)
    return static_cast<unsigned short>(sign | ((magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13));
  // Adding 0.5 leaves the subnormal's bits, rounded, at the end of the sum's fraction.
  return static_cast<unsigned short>(sign | (sycl::bit_cast<unsigned>(sycl::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u));
}

inline float from_half(unsigned short h) {
  const unsigned sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
  if (exponent == 31) return sycl::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return sycl::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -small : small;
}

KERNEL_1D cast_f32_f16(const float* src, unsigned short* dst, long count, long chunk) {
  for_chunk(count, chunk, [=](long i) { dst[i] = to_half(src[i]); });
}

KERNEL_1D cast_f16_f32(const unsigned short* src, float* dst, long count, long chunk) {
  for_chunk(count, chunk, [=](long i) { dst[i] = from_half(src[i]); });
}
