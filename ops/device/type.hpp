// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ppengine::ops {

enum class Type : std::uint8_t { f32, bf16, i32 };

constexpr std::size_t size_of(Type type) { return type == Type::bf16 ? 2 : 4; }
constexpr const char* name_of(Type type) { return type == Type::f32 ? "f32" : type == Type::bf16 ? "bf16" : "i32"; }

}  // namespace ppengine::ops
