// A launch of one of our kernels with all that it reads, to be carried out by the CPU device and by the interpreter.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../ptx/module.hpp"
#include "../ptx/thread.hpp"

namespace ppengine::test {

enum class Element : std::uint8_t { f32, bf16, f16, i8, i32, raw };  // raw: never compared

struct Argument {
  enum class Kind : std::uint8_t { buffer, integer32, integer64, number, null };
  Kind kind = Kind::null;
  Element element = Element::raw;
  std::vector<std::uint8_t> bytes;  // of a buffer
  bool written = true;              // false: nothing in it counts before the launch
  std::uint64_t value = 0;          // of a scalar, raw
};

// Another kernel, which computes the same on the CPU device: of those for tensor cores, that device has none.
struct Twin {
  std::string file, kernel;
  ptx::Size3 groups, size;
};

struct KernelCase {
  std::string file, kernel;
  int dimensions = 1;
  ptx::Size3 groups, size;
  std::vector<Argument> arguments;
  double tolerance = 0;  // a share of the largest value of a buffer; 0: by the element's type
  // Makes of a buffer's values what can be compared, where sub-groups of other sizes leave others (an index of an argument).
  std::map<std::size_t, std::function<std::vector<double>(const std::vector<double>&)>> reduce;
  std::optional<Twin> twin;
};

// What a buffer holds afterwards: NaN where nothing was written.
using Outcome = std::vector<std::vector<double>>;
Outcome run_on_cpu(const KernelCase& one);
Outcome run_on_interpreter(const KernelCase& one, const ptx::Module& module, std::uint64_t seed);
// Says where the outcomes differ; empty: nowhere.
std::string difference(const KernelCase& one, const Outcome& expected, const Outcome& got);

// ---- making them
struct Grid {
  int dimensions;
  ptx::Size3 groups, size;
};
inline Grid line(std::uint32_t groups, std::uint32_t size) { return {1, {groups, 1, 1}, {size, 1, 1}}; }
inline Grid plane(std::uint32_t groups_y, std::uint32_t groups_x, std::uint32_t size_y, std::uint32_t size_x) {
  return {2, {groups_x, groups_y, 1}, {size_x, size_y, 1}};
}
KernelCase make_case(const std::string& file, const std::string& kernel, const Grid& grid, std::vector<Argument> arguments,
                     double tolerance = 0);

Argument random(Element element, std::size_t count, double low = -2, double high = 2);  // other values at each call, the same in each run
Argument integers(const std::vector<std::int32_t>& values);
Argument longs(const std::vector<std::int64_t>& values);
Argument floats(const std::vector<float>& values);
Argument empty(Element element, std::size_t count);  // not written
Argument number(float value);
Argument whole(std::int64_t value);  // long
Argument small(std::int32_t value);  // int
Argument none();
template <class T>
Argument structure(const T& value) {
  const auto* begin = reinterpret_cast<const std::uint8_t*>(&value);
  return {Argument::Kind::buffer, Element::raw, {begin, begin + sizeof value}, true, 0};
}
inline Element element_of(const std::string& suffix) { return suffix.starts_with("bf16") ? Element::bf16 : Element::f32; }
inline const std::vector<std::string>& two_types() {
  static const std::vector<std::string> types{"f32", "bf16"};
  return types;
}

// ---- all of them, by file
std::vector<KernelCase> activation_cases();
std::vector<KernelCase> attention_cases();
std::vector<KernelCase> tile_cases();
std::vector<KernelCase> elementwise_cases();
std::vector<KernelCase> few_rows_cases();
std::vector<KernelCase> loss_cases();
std::vector<KernelCase> matmul_cases();
std::vector<KernelCase> norm_cases();
std::vector<KernelCase> optimizer_cases();
std::vector<KernelCase> tensor_attention_cases();
std::vector<KernelCase> tensor_product_cases();
std::vector<KernelCase> weight_cases();

}  // namespace ppengine::test
