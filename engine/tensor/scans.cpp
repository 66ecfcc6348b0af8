// Nodes that walk along a dimension and keep something of what they have seen: running products, log sums and extremes; bags.
#include <fmt/core.h>

#include <ppengine/engine/tensor/builder.hpp>

namespace ppengine::engine {
namespace {

// One work-item for each line along the dimension; n: its length, w: the distance of its elements, at: its first.
constexpr const char* line = "const long n = q.n[16], w = q.n[17]; const long at = i / w * n * w + i % w;\n";

struct Scan {
  std::string forward, backward;  // p0, p1: source and result; backward: source, result, its gradient, the source's gradient
};

TensorRef scan(TensorBuilder& build, const char* kind, const TensorRef& from, int dim, char type, Scan texts) {
  const TensorRef src = build.dense(build.read(from));
  const auto d = static_cast<long>(dim);
  const Dim along = src.shape[static_cast<std::size_t>(dim)], behind = count_of({src.shape.begin() + d + 1, src.shape.end()});
  const Dim lines = count_of({src.shape.begin(), src.shape.begin() + d}) * behind;
  const auto compile = [=](const TensorCompile& c) {
    const std::vector<std::int64_t> numbers{along.at(c.samples), behind.at(c.samples)};
    const std::int64_t count = lines.at(c.samples);
    const auto forward = [=](Emitter& emit) {
      emit_launch(emit, true, make_loop(emit.kernels(), count, 2, std::string(line) + texts.forward, numbers), {emit.input(0)},
                  {emit.output()});
    };
    const auto backward = [=](Emitter& emit) {
      const GradientTarget target = emit.begin_gradient(0, false);
      if (!target) return;
      emit_launch(emit, false, make_loop(emit.kernels(), count, 4, std::string(line) + texts.backward, numbers),
                  {emit.input(0), emit.output(), emit.output_gradient()}, {target.diff});
      emit.finish_gradient(0, target);
    };
    return TensorEmission{forward, backward};
  };
  return build.add_node(kind, {src}, {}, src.shape, type, compile, {}, type == 'f');
}

}  // namespace

TensorRef TensorBuilder::cumulative_product(const TensorRef& src, int dim) {
  if (src.type != 'f')
    return scan(*this, "cumulative_product", src, dim, 'i',
                {"int all = 1; for (long k = 0; k < n; ++k) { all *= ((const int*)p0)[at + k * w]; ((int*)p1)[at + k * w] = all; }", ""});
  // Products without one factor are taken afresh: division would fail at zeros.
  return scan(*this, "cumulative_product", src, dim, 'f',
              {"float all = 1; for (long k = 0; k < n; ++k) { all *= ((const float*)p0)[at + k * w]; ((float*)p1)[at + k * w] = all; }",
               "const float *x = (const float*)p0 + at, *g = (const float*)p2 + at; float before = 1;\n"
               "for (long k = 0; k < n; ++k) { float others = before, sum = 0;\n"
               "for (long j = k; j < n; ++j) { if (j > k) others *= x[j * w]; sum += g[j * w] * others; }\n"
               "((float*)p3)[at + k * w] = sum; before *= x[k * w]; }"});
}

TensorRef TensorBuilder::cumulative_log_sum(const TensorRef& src, int dim) {
  return scan(
      *this, "cumulative_log_sum", src, dim, 'f',
      {"float all = -__builtin_inff(); for (long k = 0; k < n; ++k) { const float x = ((const float*)p0)[at + k * w], most = x > all ? x : "
       "all;\n"
       "all = most == -__builtin_inff() ? most : most + sycl::log(sycl::exp(all - most) + sycl::exp(x - most)); ((float*)p1)[at + k * w] = "
       "all; }",
       "const float *x = (const float*)p0 + at, *y = (const float*)p1 + at, *g = (const float*)p2 + at;\n"
       "for (long k = 0; k < n; ++k) { float sum = 0; for (long j = k; j < n; ++j) sum += g[j * w] * sycl::exp(x[k * w] - y[j * w]);\n"
       "((float*)p3)[at + k * w] = sum; }"});
}

TensorRef TensorBuilder::cumulative_order(const TensorRef& src, int dim, bool largest) {
  const std::string type = src.type == 'f' ? "float" : "int";
  const std::string body = fmt::format(
      "const {0}* x = (const {0}*)p0 + at; long best = 0; for (long k = 0; k < n; ++k) {{ if (x[k * w] {1} x[best * w] || x[k * w] != x[k "
      "* w]) best = k; "
      "((int*)p1)[at + k * w] = (int)best; }}",
      type, largest ? ">=" : "<=");
  return scan(*this, "cumulative_order", src, dim, 'i', {body, ""});
}

TensorRef TensorBuilder::bag_numbers(const TensorRef& given, const Dim& count) {
  const TensorRef offsets = dense(given);
  const Dim bags = count_of(offsets.shape);
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t items = count.at(c.samples);
    const std::vector<std::int64_t> numbers{bags.at(c.samples)};
    const auto forward = [=](Emitter& emit) {
      const char* body =
          "long low = 0, high = q.n[16]; while (high - low > 1) { const long middle = (low + high) / 2; if (((const int*)p0)[middle] <= i) "
          "low = middle; "
          "else high = middle; }\n((int*)p1)[i] = (int)low;";
      emit_launch(emit, true, make_loop(emit.kernels(), items, 2, body, numbers), {emit.input(0)}, {emit.output()});
    };
    return TensorEmission{forward, [](Emitter&) {}};
  };
  return add_node("bag_numbers", {offsets}, {}, {count}, 'i', compile, {}, false);
}

TensorRef TensorBuilder::put_extreme(const TensorRef& from, const TensorRef& by, const TensorRef& what, bool largest) {
  const TensorRef base = dense(read(from)), index = dense(read(by)), src = dense(read(what));
  const Dim before = base.shape[0], along = base.shape[1], behind = base.shape[2], taken = index.shape[1];
  const bool of_before = !(index.shape[0].is(1) && !before.is(1)), of_behind = !(index.shape[2].is(1) && !behind.is(1));
  const auto compile = [=](const TensorCompile& c) {
    const std::int64_t p = before.at(c.samples), n = along.at(c.samples), q = behind.at(c.samples), m = taken.at(c.samples);
    const std::int64_t index_i = of_behind ? q : 1;
    const std::vector<std::int64_t> numbers{n, q, m, of_before ? m * index_i : 0, index_i, of_behind ? 1 : 0};
    const auto forward = [=](Emitter& emit) {
      const std::string body = fmt::format(
          "const long n = q.n[16], w = q.n[17], m = q.n[18]; const long c = i % w, b = i / w; {0}* to = ({0}*)p3 + b * n * w + c;\n"
          "for (long k = 0; k < n; ++k) to[k * w] = ((const {0}*)p1)[(b * n + k) * w + c];\n"
          "for (long t = 0; t < m; ++t) {{ long k = ((const int*)p0)[b * q.n[19] + t * q.n[20] + c * q.n[21]]; if (k < 0) k += n; if (k < "
          "0 || k >= n) continue;\n"
          "const {0} x = ((const {0}*)p2)[(b * m + t) * w + c]; if (x {1} to[k * w] || x != x) to[k * w] = x; }}",
          base.type == 'f' ? "float" : "int", largest ? ">" : "<");
      emit_launch(emit, true, make_loop(emit.kernels(), p * q, 4, body, numbers), {emit.input(1), emit.input(0), emit.input(2)},
                  {emit.output()});
    };
    return TensorEmission{forward, [](Emitter&) {}};
  };
  return add_node("put_extreme", {base, index, src}, {}, base.shape, base.type, compile, {}, false);
}

}  // namespace ppengine::engine
