// Element-wise reductions on host-accessible memory, tile by tile so that the running sum stays in the first-level cache.
#include <ppengine/comm/reduce.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

namespace ppengine::comm {
namespace {

constexpr std::size_t tile = 2048;

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  std::uint16_t bits;
};

float widen(Bf16 x) { return std::bit_cast<float>(std::uint32_t{x.bits} << 16); }
float widen(F16 x) {
  const std::uint32_t sign = std::uint32_t{x.bits & 0x8000u} << 16, exponent = (x.bits >> 10) & 31u, fraction = x.bits & 0x3ffu;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float small = static_cast<float>(fraction) * 0x1p-24f;
  return sign != 0 ? -small : small;
}
template <class T>
T widen(T x) {
  return x;
}

void narrow(float x, Bf16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    out.bits = static_cast<std::uint16_t>((bits >> 16) | 0x40u);  // stays a NaN
  else
    out.bits = static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
void narrow(float x, F16& out) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    out.bits = static_cast<std::uint16_t>(sign | 0x7e00u);
  else if (magnitude >= 0x477ff000u)
    out.bits = static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds to infinity
  else if (magnitude >= 0x38800000u) {                      // normal in f16
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    out.bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  } else {  // adding 0.5 leaves the subnormal's bits, rounded to even, at the end of the sum's fraction
    out.bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u));
  }
}
template <class T>
void narrow(T x, T& out) {
  out = x;
}

template <class T, class Combine>
void run(std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t count, Combine combine) {
  using Wide = decltype(widen(T{}));
  Wide sum[tile];
  T result[tile];
  for (std::size_t begin = 0; begin < count; begin += tile) {
    const std::size_t n = std::min(tile, count - begin);
    const T* first = static_cast<const T*>(inputs[0]) + begin;
    for (std::size_t i = 0; i < n; ++i) sum[i] = widen(first[i]);
    for (const void* input : inputs.subspan(1)) {
      const T* in = static_cast<const T*>(input) + begin;
      for (std::size_t i = 0; i < n; ++i) sum[i] = combine(sum[i], widen(in[i]));
    }
    for (std::size_t i = 0; i < n; ++i) narrow(sum[i], result[i]);
    for (void* output : outputs) std::memcpy(static_cast<T*>(output) + begin, result, n * sizeof(T));
  }
}

// Sums of integers wrap around, as they do in oneCCL and NCCL.
template <class Value>
Value add(Value a, Value b) {
  if constexpr (std::is_integral_v<Value>)
    return static_cast<Value>(static_cast<std::make_unsigned_t<Value>>(a) + static_cast<std::make_unsigned_t<Value>>(b));
  else
    return a + b;
}

template <class T>
void dispatch(std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t count, Reduce reduce) {
  switch (reduce) {
    case Reduce::sum:
      return run<T>(inputs, outputs, count, [](auto a, auto b) { return add(a, b); });
    case Reduce::max:
      return run<T>(inputs, outputs, count, [](auto a, auto b) { return a < b ? b : a; });
    case Reduce::min:
      return run<T>(inputs, outputs, count, [](auto a, auto b) { return b < a ? b : a; });
  }
}

}  // namespace

void reduce_elements(std::span<const void* const> inputs, std::span<void* const> outputs, std::size_t count, Type type, Reduce reduce) {
  switch (static_cast<Type::Value>(type)) {
    case Type::f32:
      return dispatch<float>(inputs, outputs, count, reduce);
    case Type::bf16:
      return dispatch<Bf16>(inputs, outputs, count, reduce);
    case Type::f16:
      return dispatch<F16>(inputs, outputs, count, reduce);
    case Type::f64:
      return dispatch<double>(inputs, outputs, count, reduce);
    case Type::i32:
      return dispatch<std::int32_t>(inputs, outputs, count, reduce);
    case Type::i64:
      return dispatch<std::int64_t>(inputs, outputs, count, reduce);
    case Type::u8:
      return dispatch<std::uint8_t>(inputs, outputs, count, reduce);
  }
}

}  // namespace ppengine::comm
