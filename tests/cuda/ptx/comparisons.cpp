// setp: comparisons that give a predicate. Of floats, those that end in u are true where an operand is not a number; the others are false.
#include <cmath>

#include "arithmetic.hpp"
#include "bits.hpp"

namespace ppengine::ptx {
namespace {

using std::uint64_t;

template <class T>
void add_of(Arithmetic& table, const std::string& type) {
  const auto name = [&](const char* relation) { return std::string("setp.") + relation + "." + type; };
  table[name("eq")] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t { return from_bits<T>(a) == from_bits<T>(b); };
  table[name("lt")] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t { return from_bits<T>(a) < from_bits<T>(b); };
  table[name("le")] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t { return from_bits<T>(a) <= from_bits<T>(b); };
  table[name("gt")] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t { return from_bits<T>(a) > from_bits<T>(b); };
  table[name("ge")] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t { return from_bits<T>(a) >= from_bits<T>(b); };
  // Of integers "different"; of floats that, and both are numbers.
  table[name("ne")] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t {
    return from_bits<T>(a) < from_bits<T>(b) || from_bits<T>(a) > from_bits<T>(b);
  };
}

void add_unordered(Arithmetic& table) {
  table["setp.equ.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t {
    const float x = from_bits<float>(a), y = from_bits<float>(b);
    return !(x < y || x > y);
  };
  table["setp.neu.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t {
    return !(from_bits<float>(a) == from_bits<float>(b));
  };
  table["setp.ltu.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t {
    return !(from_bits<float>(a) >= from_bits<float>(b));
  };
  table["setp.leu.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t {
    return !(from_bits<float>(a) > from_bits<float>(b));
  };
  table["setp.gtu.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t {
    return !(from_bits<float>(a) <= from_bits<float>(b));
  };
  table["setp.geu.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t {
    return !(from_bits<float>(a) < from_bits<float>(b));
  };
  table["setp.nan.f32"] = [](std::uint64_t a, std::uint64_t b, std::uint64_t) -> std::uint64_t {
    return std::isnan(from_bits<float>(a)) || std::isnan(from_bits<float>(b));
  };
}

}  // namespace

void add_comparisons(Arithmetic& table) {
  add_of<std::int16_t>(table, "s16");
  add_of<std::uint16_t>(table, "u16");
  add_of<std::uint16_t>(table, "b16");
  add_of<std::int32_t>(table, "s32");
  add_of<std::uint32_t>(table, "u32");
  add_of<std::uint32_t>(table, "b32");
  add_of<std::int64_t>(table, "s64");
  add_of<std::uint64_t>(table, "u64");
  add_of<std::uint64_t>(table, "b64");
  add_of<float>(table, "f32");
  add_unordered(table);
}

}  // namespace ppengine::ptx
