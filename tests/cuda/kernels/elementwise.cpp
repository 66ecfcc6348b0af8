// Launches of ops/kernels/elementwise.cpp, activation.cpp and half.cpp.
#include "case.hpp"

namespace ppengine::test {
namespace {

constexpr std::int64_t count = 1500, chunk = 1024;  // two work-groups, the second not full
const Grid flat = line(2, 256);

std::vector<Argument> with_count(std::vector<Argument> arguments) {
  arguments.push_back(whole(count));
  arguments.push_back(whole(chunk));
  return arguments;
}

}  // namespace

std::vector<KernelCase> activation_cases() {
  std::vector<KernelCase> all;
  constexpr std::int64_t rows = 3, width = 70, stride = 90;
  for (const std::string& type : two_types()) {
    const Element t = element_of(type);
    for (const char* kind : {"gelu_tanh", "gelu_erf", "silu", "relu"}) {
      all.push_back(make_case("activation", std::string(kind) + "_" + type, flat, with_count({random(t, count, -9, 9), empty(t, count)})));
      all.push_back(make_case("activation", std::string(kind) + "_backward_" + type, flat,
                              with_count({random(t, count, -9, 9), random(t, count), empty(t, count)})));
    }
    const auto shape = [&](std::vector<Argument> arguments) {
      for (const std::int64_t one : {rows, width, stride, std::int64_t{1}}) arguments.push_back(whole(one));
      return arguments;
    };
    const Argument gate = random(t, rows * stride), up = random(t, rows * stride);
    all.push_back(make_case("activation", "gated_silu_" + type, line(rows, 128), shape({gate, up, empty(t, rows * width)})));
    all.push_back(make_case("activation", "gated_silu_backward_" + type, line(rows, 128),
                            shape({gate, up, random(t, rows * width), empty(t, rows * stride), empty(t, rows * stride)})));
  }
  all.push_back(
      make_case("half", "cast_f32_f16", flat, with_count({random(Element::f32, count, -1e-4, 1e-4), empty(Element::f16, count)})));
  Argument halves = random(Element::i32, count / 2, 0, 0x7bff);
  halves.element = Element::f16;
  all.push_back(make_case("half", "cast_f16_f32", flat, with_count({halves, empty(Element::f32, count)})));
  return all;
}

std::vector<KernelCase> elementwise_cases() {
  std::vector<KernelCase> all;
  const auto add = [&](const std::string& kernel, std::vector<Argument> arguments, const Grid& grid = flat) {
    all.push_back(make_case("elementwise", kernel, grid, std::move(arguments)));
  };
  for (const std::string& type : two_types()) {
    const Element t = element_of(type);
    const Argument a = random(t, count), b = random(t, count), out = empty(t, count);
    add("add_" + type, with_count({a, b, out}));
    add("multiply_" + type, with_count({a, b, out}));
    add("scale_" + type, with_count({a, number(1.5f)}));
    add("scaled_" + type, with_count({a, out, number(1.5f)}));
    add("soft_cap_" + type, with_count({a, out, number(0.7f)}));
    add("soft_cap_backward_" + type, with_count({a, b, out, number(0.7f)}));
    add("fill_" + type, with_count({out, number(0.25f)}));
    add("add_bias_" + type, {random(t, 210), random(t, 70), empty(t, 210), whole(3), whole(70), whole(1)}, line(3, 128));
    for (const bool with_add : {false, true}) {
      // Elements 100 to 399 of a stream of random words: units of 64, the first and the last in part.
      std::vector<Argument> arguments{random(t, 300)};
      if (with_add) arguments.push_back(random(t, 300));
      arguments.push_back(empty(t, 300));
      for (const Argument& one : {whole(300), whole(4), small(1 << 30), number(4.0f / 3), whole(0x1234567890abcdef), whole(100)})
        arguments.push_back(one);
      add(with_add ? "dropout_add_" + type : "dropout_" + type, arguments, plane(2, 1, 4, 16));
    }
  }
  add("fill_i32", with_count({empty(Element::i32, count), number(7.0f)}));
  const std::vector<std::pair<std::string, Element>> types{{"f32", Element::f32}, {"bf16", Element::bf16}, {"i32", Element::i32}};
  for (const auto& [from, f] : types)
    for (const auto& [to, t] : types)
      if (from != to) add("cast_" + from + "_" + to, with_count({random(f, count, -100, 100), empty(t, count)}));
  for (const auto& [name, element] : {std::pair{"copy_strided_2", Element::bf16}, std::pair{"copy_strided_4", Element::f32}}) {
    // [2,1,3,2,5] to its transpose: 12 rows of 5.
    std::vector<Argument> arguments{
        random(element, 60), empty(element, 60), whole(12), whole(3), whole(2), whole(1), whole(3), whole(2), whole(5)};
    for (const int stride : {60, 30, 30, 10, 5, 1, 60, 6, 6, 2, 1, 12}) arguments.push_back(whole(stride));
    add(name, arguments, line(4, 32));
  }
  const Argument rows = integers({4, 0, 6});
  add("gather_rows_f32", {random(Element::f32, 7 * 70), rows, empty(Element::f32, 210), whole(3), whole(70), whole(1)}, line(3, 128));
  add("scatter_rows_f32", {random(Element::f32, 210), rows, empty(Element::f32, 400), whole(3), whole(70), whole(30), whole(430), whole(1)},
      line(3, 128));
  add("transpose_f32", {random(Element::f32, 20 * 37), empty(Element::f32, 20 * 37), whole(20), whole(37)}, plane(2, 3, 16, 16));
  add("transpose_cached_f32", {random(Element::f32, 20 * 37), empty(Element::f32, 20 * 37), whole(20), whole(37), whole(6), whole(2)},
      line(3, 16));
  return all;
}

}  // namespace ppengine::test
