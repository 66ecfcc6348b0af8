// Element types and reductions of messages. Wider than ops::Type: f16 for compressed gradients, f64 and i64 for figures.
#pragma once

#include <cstddef>
#include <cstdint>

#include <ppengine/ops/device/type.hpp>

namespace ppengine::comm {

class Type {
 public:
  enum Value : std::uint8_t { f32, bf16, f16, f64, i32, i64, u8 };

  constexpr Type(Value value) : value_(value) {}  // NOLINT: implicit on purpose
  constexpr Type(ops::Type type)                  // NOLINT: a tensor's type goes straight into a call
      : value_(type == ops::Type::f32    ? f32
               : type == ops::Type::bf16 ? bf16
                                         : i32) {}
  constexpr operator Value() const { return value_; }  // NOLINT: for switch and ==

  constexpr std::size_t size() const {
    constexpr std::size_t sizes[] = {4, 2, 2, 8, 4, 8, 1};
    return sizes[value_];
  }
  constexpr const char* name() const {
    constexpr const char* names[] = {"f32", "bf16", "f16", "f64", "i32", "i64", "u8"};
    return names[value_];
  }

 private:
  Value value_;
};

enum class Reduce : std::uint8_t { sum, max, min };
constexpr const char* name_of(Reduce reduce) { return reduce == Reduce::sum ? "sum" : reduce == Reduce::max ? "max" : "min"; }

}  // namespace ppengine::comm
