// Launches of ops/kernels/norm.cpp, loss.cpp and optimizer.cpp.
#include <cmath>

#include "case.hpp"

namespace ppengine::test {
namespace {

// Rows for sub-groups, four to a work-group, and wide ones for whole work-groups.
struct Team {
  std::string suffix;
  std::int64_t rows, width, chunk;
  Grid grid;
};
const std::vector<Team>& teams() {
  static const std::vector<Team> all{{"", 6, 70, 4, line(2, 128)}, {"_wide", 2, 1100, 1, line(2, 256)}};
  return all;
}

// The sum of partial sums (ops/kernels/optimizer.cpp: their number in front, then pairs).
std::vector<double> total(const std::vector<double>& partials) {
  double sum = 0;
  for (std::size_t i = 2; i < 2 + 2 * static_cast<std::size_t>(std::isnan(partials[0]) ? 0 : partials[0]) && i < partials.size(); ++i)
    sum += partials[i];
  return {sum};
}

}  // namespace

std::vector<KernelCase> norm_cases() {
  std::vector<KernelCase> all;
  const auto f32 = Element::f32;
  for (const std::string& type : two_types()) {
    const Element t = element_of(type);
    for (const Team& team : teams()) {
      const auto cells = static_cast<std::size_t>(team.rows * team.width), rows = static_cast<std::size_t>(team.rows),
                 width = static_cast<std::size_t>(team.width);
      const auto add = [&](const std::string& kernel, std::vector<Argument> arguments) {
        all.push_back(make_case("norm", kernel + "_" + type + team.suffix, team.grid, std::move(arguments)));
      };
      const Argument x = random(t, cells), d = random(t, cells), gamma = random(t, width), out = empty(t, cells);
      for (const int centered : {0, 1}) {
        add("norm_forward", {x, gamma, centered ? random(t, width) : none(), out, empty(f32, rows), empty(f32, rows), whole(team.rows),
                             whole(team.width), number(1e-5f), number(0), small(centered), whole(team.chunk)});
        add("norm_backward_input", {x, d, gamma, random(f32, rows), random(f32, rows, 0.5, 2), centered ? random(t, cells) : none(), out,
                                    whole(team.rows), whole(team.width), number(0), small(centered), whole(team.chunk)});
      }
      add("softmax", {x, out, whole(team.rows), whole(team.width), whole(team.chunk)});
      add("softmax_backward", {random(t, cells, 0, 1), d, out, whole(team.rows), whole(team.width), whole(team.chunk)});
    }
    const Argument x = random(t, 350), d = random(t, 350), mean = random(f32, 7), rstd = random(f32, 7, 0.5, 2);
    all.push_back(make_case("norm", "layer_norm_backward_weight_" + type, plane(1, 2, 4, 32),
                            {x, d, mean, rstd, random(f32, 50), random(f32, 50), whole(7), whole(50), small(1)}));
    all.push_back(make_case("norm", "rms_norm_backward_weight_" + type, plane(1, 2, 4, 32),
                            {x, d, rstd, empty(f32, 50), whole(7), whole(50), small(0)}));
  }
  all.push_back(
      make_case("norm", "variance_to_rstd", line(2, 32), {random(f32, 50, 0, 2), empty(f32, 50), number(1e-5f), whole(50), whole(32)}));
  return all;
}

std::vector<KernelCase> loss_cases() {
  std::vector<KernelCase> all;
  const auto f32 = Element::f32;
  for (const std::string& type : two_types()) {
    const Element t = element_of(type);
    for (const Team& team : teams()) {
      const auto cells = static_cast<std::size_t>(team.rows * team.width), rows = static_cast<std::size_t>(team.rows);
      const auto add = [&](const std::string& kernel, std::vector<Argument> arguments) {
        all.push_back(make_case("loss", kernel + "_" + type + team.suffix, team.grid, std::move(arguments)));
      };
      std::vector<std::int32_t> ids(rows, -100);  // one row does not count
      for (std::size_t i = 1; i < rows; ++i) ids[i] = static_cast<std::int32_t>(11 * i);
      const Argument logits = random(t, cells), targets = integers(ids), losses = empty(f32, rows), diff = empty(t, cells);
      add("cross_entropy", {logits, targets, number(0.3f), losses, diff, whole(team.rows), whole(team.width), whole(team.chunk)});
      add("cross_entropy_part", {logits, targets, empty(f32, 3 * rows), whole(team.rows), whole(team.width), whole(5), whole(team.chunk)});
      add("cross_entropy_join", {logits, targets, random(f32, 6 * rows, 1, 2), small(2), number(0.3f), losses, diff, whole(team.rows),
                                 whole(team.width), whole(5), whole(2 * team.width), whole(team.chunk)});
    }
    const Argument ids = integers({3, 9, 3, -1, 5, 3});
    all.push_back(make_case("loss", "embedding_" + type, line(6, 64),
                            {ids, random(t, 8 * 40), random(t, 4 * 40), integers({1, 0}), empty(t, 240), whole(6), whole(3), whole(40),
                             whole(8), whole(4), whole(0), whole(1)}));
    all.push_back(make_case("loss", "embedding_backward_tokens_" + type, line(6, 64),
                            {ids, integers({2, -0x7ffffffa, -0x7ffffffb, -0x7ffffffa, 6, -0x7ffffffa}), random(t, 240), random(f32, 8 * 40),
                             whole(6), whole(40), whole(0), whole(1)}));
    all.push_back(make_case("loss", "embedding_backward_positions_" + type, line(3, 64),
                            {random(t, 240), random(f32, 120), whole(2), whole(3), whole(40), small(1), whole(1)}));
  }
  all.push_back(make_case("loss", "embedding_chain", line(1, 256),
                          {integers({3, 9, 3, -1, 5, 3}), empty(Element::i32, 6), whole(6), whole(0), whole(8), whole(5)}));
  return all;
}

std::vector<KernelCase> optimizer_cases() {
  std::vector<KernelCase> all;
  const auto f32 = Element::f32;
  constexpr std::int64_t count = 1500, chunk = 1024;
  const auto add = [&](const std::string& kernel, const Grid& grid, std::vector<Argument> arguments) {
    all.push_back(make_case("optimizer", kernel, grid, std::move(arguments)));
  };
  const Argument p = random(f32, count), g = random(f32, count), m = random(f32, count), v = random(f32, count, 0.1, 2);
  std::vector<Argument> adamw{p,
                              g,
                              m,
                              v,
                              whole(count),
                              whole(chunk),
                              number(0.5f),
                              number(0.99f),
                              number(1e-3f),
                              number(0.1f),
                              number(0.1f),
                              number(0.999f),
                              number(0.001f),
                              number(1e-8f)};
  add("adamw", line(2, 256), adamw);
  adamw.insert(adamw.begin() + 4, empty(Element::bf16, count));
  add("adamw_copy", line(2, 256), adamw);
  std::vector<Argument> narrow = adamw;  // moments in bf16, rounded by bits that step and element decide
  narrow[2] = random(Element::bf16, count);
  narrow[3] = random(Element::bf16, count, 0.1, 2);
  narrow.push_back(small(7));
  add("adamw_narrow", line(2, 256), narrow);
  add("adafactor_average", line(2, 256), {p, g, whole(count), whole(chunk), number(0.5f), number(0.1f)});
  for (const bool matrix : {true, false})
    add("adafactor_update", line(2, 256),
        {g, random(f32, matrix ? 30 : count, 0.1, 2), matrix ? random(f32, 50, 0.1, 2) : none(), matrix ? floats({31}) : none(),
         empty(f32, count), whole(count), whole(chunk), whole(50), number(0.5f), number(1.0f / 30), number(1e-3f)});
  for (const bool velocity : {false, true})
    add("sgd", line(2, 256),
        {p, g, velocity ? m : none(), velocity ? none() : empty(Element::bf16, count), whole(count), whole(chunk), number(0.5f),
         number(0.01f), number(0.9f), number(0.1f), small(0)});
  for (const std::string& type : two_types())
    add("sum_rows_" + type, plane(1, 2, 8, 32), {random(element_of(type), 19 * 50), random(f32, 50), whole(19), whole(50), small(1)});
  constexpr std::int64_t many = 5000, part = 3000;
  for (const char* kernel : {"sum_partial", "sum_squares_partial"}) {
    add(kernel, line(2, 256), {random(f32, many), empty(f32, 2 * (1 + 2 * 64)), whole(many), whole(part)});
    all.back().reduce[1] = total;
  }
  add("sum_squares_chunks", line(2, 256), {random(f32, many), longs({17, 2500, 3000, 4999}), empty(f32, 2 * (1 + 2 * 64))});
  all.back().reduce[2] = total;
  std::vector<float> partials{40, 0};
  for (int i = 0; i < 40; ++i) partials.insert(partials.end(), {1.0f + static_cast<float>(i), 0x1p-26f});
  add("sum_final", line(1, 16), {floats(partials), empty(f32, 1)});
  return all;
}

}  // namespace ppengine::test
