// Launches of ops/kernels/matmul.cpp, few_rows_wide.cpp, few_rows_narrow.cpp and weights.cpp.
#include <cmath>

#include <ppengine/ops/kernels/matmul_shape.hpp>

#include "case.hpp"

namespace ppengine::test {

std::vector<KernelCase> matmul_cases() {
  std::vector<KernelCase> all;
  constexpr long m = 70, n = 66, k = 20;
  for (const std::string type : {"f32", "bf16", "bf16_f32"}) {
    const Element in = element_of(type), out = type == "bf16" ? Element::bf16 : Element::f32;
    const auto arguments = [&](const MatmulShape& s, std::size_t batch, bool extras) {
      const auto cells = [&](long a, long b) { return batch * static_cast<std::size_t>(a * b); };
      const Argument c = extras ? random(out, cells(s.m, s.n)) : empty(out, cells(s.m, s.n));
      return std::vector<Argument>{random(in, cells(s.m, s.k)),
                                   random(in, cells(s.k, s.n)),
                                   c,
                                   extras ? random(in, static_cast<std::size_t>(s.n)) : none(),
                                   extras ? random(out, cells(s.m, s.n)) : none(),
                                   structure(s),
                                   small(extras ? 1 : 0)};
    };
    // b as it lies and transposed; two of a batch.
    const MatmulShape plain{m, n, k, k, 1, n, 1, n, 1, 1, m * k, 0, k * n, 0, m * n, 0, 0.5f};
    const MatmulShape transposed{m, n, k, k, 1, 1, k, n, 1, 2, 0, m * k, 0, k * n, 0, m * n, 0.5f};
    all.push_back(make_case("matmul", "matmul_" + type, plane(2, 2, 16, 16), arguments(plain, 1, true)));
    all.push_back(make_case("matmul", "matmul_" + type, plane(4, 2, 16, 16), arguments(transposed, 2, false)));
    MatmulShape few = transposed, few_plain = plain;
    few.m = few_plain.m = 2;
    few.a_inner = 2 * k, few.c_inner = 2 * n;
    all.push_back(make_case("matmul", "matvec_" + type, plane(4, 5, 16, 16), arguments(few, 2, false)));
    all.push_back(make_case("matmul", "matvec_" + type, plane(2, 5, 16, 16), arguments(few_plain, 1, true)));
  }
  return all;
}

std::vector<KernelCase> few_rows_cases() {
  std::vector<KernelCase> all;
  const auto f32 = Element::f32;
  for (const bool wide : {true, false}) {
    const std::int64_t in = wide ? 296 : 71, out = 11, group = wide ? 148 : 40, groups = 2;
    for (const std::string type : {"f32", "bf16", "int8"})
      for (const std::int64_t most : {1, 2, 4, 8})
        for (const bool norm : {false, true}) {
          const std::int64_t rows = most == 8 ? 7 : most;
          const auto cells = [](std::int64_t a, std::int64_t b) { return static_cast<std::size_t>(a * b); };
          const Element weight = type == "int8" ? Element::i8 : element_of(type);
          const bool gated = most == 2, extras = most != 1;
          std::vector<Argument> arguments{
              random(f32, cells(rows, in)),
              weight == Element::i8 ? random(weight, cells(out, in), -127, 127) : random(weight, cells(out, in)),
              type == "int8" ? random(f32, cells(out, groups), 0.01, 0.02) : none(),
              extras ? random(f32, cells(out, 1)) : none(),
              extras ? random(f32, cells(rows, out)) : none(),
              gated ? random(f32, cells(rows, out)) : none(),
              norm ? random(f32, cells(in, 1)) : none(),
              norm && extras ? random(f32, cells(in, 1)) : none(),
              empty(f32, cells(rows, out))};
          for (const std::int64_t one : {rows, in, out, type == "int8" ? group : in}) arguments.push_back(whole(one));
          for (const Argument& one : {number(1e-5f), small(most > 2 ? 1 : 0),
                                      small(most == 1   ? 0
                                            : most == 2 ? 3
                                            : most == 4 ? 1
                                                        : 2),
                                      whole(8)})
            arguments.push_back(one);
          const std::string name = "few_rows_" + type + "_" + std::to_string(most) + (norm ? "_norm" : "");
          all.push_back(make_case(wide ? "few_rows_wide" : "few_rows_narrow", name, line(2, 128), std::move(arguments)));
        }
  }
  return all;
}

std::vector<KernelCase> weight_cases() {
  std::vector<KernelCase> all;
  const auto f32 = Element::f32;
  const auto add = [&](const std::string& kernel, const Grid& grid, std::vector<Argument> arguments) {
    all.push_back(make_case("weights", kernel, grid, std::move(arguments)));
  };
  constexpr std::int64_t out = 8, in = 64, group = 32;
  Argument four_bits = random(Element::i8, out * in / 2, -127, 127);
  std::vector<float> words;  // a step and a least value, both as bf16, in the bits of one float
  for (int i = 0; i < out * in / group; ++i) words.push_back(0.01f * static_cast<float>(i + 1));
  const Argument scales = random(f32, out * in / group, 0.01, 0.02);
  const auto sizes = [&](std::vector<Argument> arguments) {
    for (const std::int64_t one : {out, in, group}) arguments.push_back(whole(one));
    return arguments;
  };
  const auto widen = [&](std::vector<Argument> arguments, std::int64_t chunk) {
    arguments.push_back(empty(f32, out * in));
    arguments = sizes(std::move(arguments));
    arguments.push_back(whole(chunk));
    return arguments;
  };
  add("widen_bf16", line(1, 256), widen({random(Element::bf16, out * in), none()}, 1024));
  add("widen_int8", line(8, 64), widen({random(Element::i8, out * in, -127, 127), scales}, 1));
  add("widen_int4", line(8, 64), widen({four_bits, floats(words)}, 1));
  const auto gather = [&](const Argument& table, const Argument& with) {
    std::vector<Argument> arguments{integers({3, 9, 0, -1, 7, 3}), table, with, random(f32, 5 * in), integers({1, 2}), empty(f32, 6 * in)};
    for (const std::int64_t one : {std::int64_t{6}, std::int64_t{3}, in, std::int64_t{0}, out, group, std::int64_t{1}})
      arguments.push_back(whole(one));
    return arguments;
  };
  add("gather_bf16", line(6, 64), gather(random(Element::bf16, out * in), none()));
  add("gather_int8", line(6, 64), gather(random(Element::i8, out * in, -127, 127), scales));
  add("gather_int4", line(6, 64), gather(four_bits, floats(words)));
  // As many sums as there are sub-groups: their total is what is compared.
  add("read_all", line(2, 256), {random(f32, 2048), empty(f32, 2 * 64), whole(2048), whole(1024)});
  all.back().reduce[1] = [](const std::vector<double>& sums) {
    double total = 0;
    for (const double sum : sums) total += std::isnan(sum) ? 0 : sum;
    return std::vector<double>{total};
  };
  return all;
}

}  // namespace ppengine::test
