// Integer arithmetic, bits and selection.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "arithmetic.hpp"
#include "bits.hpp"

namespace ppengine::ptx {
namespace {

using std::uint64_t;

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Sums and products wrap around: computed without sign.
template <class T>
void add_wrapping(Arithmetic& table, const std::string& type) {
  using U = Unsigned<T>;
  table["add." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    return to_bits<U>(static_cast<U>(from_bits<U>(a) + from_bits<U>(b)));
  };
  table["sub." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    return to_bits<U>(static_cast<U>(from_bits<U>(a) - from_bits<U>(b)));
  };
  table["mul.lo." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return to_bits<U>(static_cast<U>(a * b)); };
  table["mad.lo." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t c) { return to_bits<U>(static_cast<U>(a * b + c)); };
  table["neg." + type] = [](std::uint64_t a, std::uint64_t, std::uint64_t) { return to_bits<U>(static_cast<U>(0 - from_bits<U>(a))); };
}

// Division by zero gives all ones, as on devices.
template <class T>
T quotient(T a, T b) {
  if (b == 0) return static_cast<T>(~Unsigned<T>(0));
  if (std::is_signed_v<T> && a == std::numeric_limits<T>::min() && b == static_cast<T>(-1)) return a;
  return static_cast<T>(a / b);
}

template <class T>
void add_ordered(Arithmetic& table, const std::string& type) {
  table["div." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    return to_bits<T>(quotient(from_bits<T>(a), from_bits<T>(b)));
  };
  table["rem." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    const T x = from_bits<T>(a), y = from_bits<T>(b);
    return to_bits<T>(y == 0 || (std::is_signed_v<T> && y == static_cast<T>(-1)) ? (y == 0 ? x : T(0)) : static_cast<T>(x % y));
  };
  table["min." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    return to_bits<T>(std::min(from_bits<T>(a), from_bits<T>(b)));
  };
  table["max." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    return to_bits<T>(std::max(from_bits<T>(a), from_bits<T>(b)));
  };
  // Shifts by the width or more leave nothing but the sign.
  table["shr." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    constexpr unsigned last = sizeof(T) * 8 - 1;
    const auto by = static_cast<unsigned>(b & 0xffffffffu);
    const T value = from_bits<T>(a);
    return to_bits<T>(by > last ? (value < 0 ? static_cast<T>(-1) : T(0)) : static_cast<T>(value >> by));
  };
}

template <class U>
void add_bits(Arithmetic& table, const std::string& type) {
  table["and." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return a & b; };
  table["or." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return a | b; };
  table["xor." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) { return a ^ b; };
  table["not." + type] = [](std::uint64_t a, std::uint64_t, std::uint64_t) { return to_bits<U>(static_cast<U>(~from_bits<U>(a))); };
  table["shl." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) {
    const auto by = static_cast<unsigned>(b & 0xffffffffu);
    return by >= sizeof(U) * 8 ? 0 : to_bits<U>(static_cast<U>(from_bits<U>(a) << by));
  };
  table["selp." + type] = [](std::uint64_t a, std::uint64_t b, std::uint64_t c) { return (c & 1) != 0 ? a : b; };
}

template <class T, class Wide>
std::uint64_t wide_product(std::uint64_t a, std::uint64_t b, std::uint64_t) {
  return to_bits<Wide>(static_cast<Wide>(from_bits<T>(a)) * static_cast<Wide>(from_bits<T>(b)));
}

// The field of `length` bits from `position` on; the signed one repeats its highest bit.
template <bool with_sign>
std::uint64_t bit_field(std::uint64_t a, std::uint64_t position, std::uint64_t length) {
  position &= 255, length &= 255;
  if (length == 0 || position > 31) return 0;
  const std::uint64_t mask = length >= 32 ? 0xffffffffu : (std::uint64_t(1) << length) - 1;
  std::uint64_t field = ((a & 0xffffffffu) >> position) & mask;
  const std::uint64_t top = std::min<std::uint64_t>(position + length - 1, 31);
  if (with_sign && ((a >> top) & 1) != 0) field |= ~std::uint64_t(0) << (top - position + 1);
  return field & 0xffffffffu;
}

}  // namespace

void add_integers(Arithmetic& table) {
  add_wrapping<std::int32_t>(table, "s32");
  add_wrapping<std::uint32_t>(table, "u32");
  add_wrapping<std::int64_t>(table, "s64");
  add_wrapping<std::uint64_t>(table, "u64");
  add_ordered<std::int32_t>(table, "s32");
  add_ordered<std::uint32_t>(table, "u32");
  add_ordered<std::int64_t>(table, "s64");
  add_ordered<std::uint64_t>(table, "u64");
  add_bits<std::uint16_t>(table, "b16");
  add_bits<std::uint32_t>(table, "b32");
  add_bits<std::uint64_t>(table, "b64");
  table["and.pred"] = table["and.b32"];
  table["or.pred"] = table["or.b32"];
  table["xor.pred"] = table["xor.b32"];
  table["not.pred"] = [](std::uint64_t a, std::uint64_t, std::uint64_t) { return ~a & 1; };
  table["mul.wide.s32"] = wide_product<std::int32_t, std::int64_t>;
  table["mul.wide.u32"] = wide_product<std::uint32_t, std::uint64_t>;
  table["bfe.u32"] = bit_field<false>;
  table["bfe.s32"] = bit_field<true>;
}

}  // namespace ppengine::ptx
