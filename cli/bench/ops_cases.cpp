// The cases of `ppengine bench ops`.
#include "bench/ops_cases.hpp"

#include <fmt/core.h>

#include <ppengine/ops/activation.hpp>
#include <ppengine/ops/attention.hpp>
#include <ppengine/ops/cross_entropy.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/embedding.hpp>
#include <ppengine/ops/linear.hpp>
#include <ppengine/ops/norm.hpp>
#include <ppengine/ops/optimizer.hpp>
#include <ppengine/ops/softmax.hpp>

namespace ppengine::cli {
namespace {

using namespace ppengine::ops;

// One op at one shape: its memory, and what it hands to the visitor.
class Bench {
 public:
  Bench(Stream& stream, const std::function<void(const BenchCase&)>& visit, std::string op, std::string shape)
      : stream_(stream), visit_(visit), op_(std::move(op)), shape_(std::move(shape)) {}

  float* floats(std::int64_t count, float value = 0.5f) {
    buffers_.emplace_back(stream_.device_ptr(), static_cast<std::size_t>(count) * sizeof(float));
    fill(stream_, Type::f32, buffers_.back().data(), value, count);
    return buffers_.back().as<float>();
  }
  std::int32_t* ids(std::int64_t count, std::int64_t below) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    std::uint64_t state = 88172645463325252ull;
    for (auto& value : values) {
      state ^= state << 13, state ^= state >> 7, state ^= state << 17;
      value = static_cast<std::int32_t>(state % static_cast<std::uint64_t>(below));
    }
    buffers_.emplace_back(stream_.device_ptr(), values.size() * sizeof(std::int32_t));
    stream_.copy(buffers_.back().data(), values.data(), values.size() * sizeof(std::int32_t));
    stream_.wait();
    return buffers_.back().as<std::int32_t>();
  }
  void by(std::string implementation, bool used) { implementation_ = std::move(implementation), used_ = used; }
  // elements: f32 values that the pass must read or write at least once.
  void pass(const char* name, std::int64_t elements, const std::function<void()>& run) {
    visit_({op_, name, shape_, implementation_, used_, static_cast<double>(elements) * 4, 0, run});
  }
  void product(const char* name, double flops, const std::function<void()>& run) {
    visit_({op_, name, shape_, implementation_, used_, 0, flops, run});
  }

 private:
  Stream& stream_;
  const std::function<void(const BenchCase&)>& visit_;
  std::string op_, shape_, implementation_ = "sycl";
  bool used_ = true;
  std::vector<Buffer> buffers_;
};

// Calls body(op) for every implementation that takes the spec, naming it and saying whether it is the one in use, which is the first.
template <class Op, class Spec, class Body>
void each_implementation(Stream& stream, Bench& bench, const Spec& spec, Body body) {
  bool taken = false;
  for (const auto& one : Op::implementations()) {
    if (one.refusal(stream.device(), spec)) continue;
    bench.by(one.name, !taken);
    taken = true;
    const auto op = one.make(stream.device(), spec);
    body(*op);
  }
}

struct Cases {
  Stream& stream;
  const BenchShape& shape;
  const std::string& only;
  const std::function<void(const BenchCase&)>& visit;

  bool wanted(std::string_view op) const { return only.empty() || only == op; }
  std::string text(std::int64_t a, std::int64_t b) const { return fmt::format("[{},{}]", a, b); }

  static std::string first(const std::vector<Considered>& considered) {
    for (const auto& one : considered)
      if (!one.refusal) return one.implementation;
    return "none";
  }

  void linear(const char* what, std::int64_t in, std::int64_t out) const {
    if (!wanted("linear")) return;
    Bench bench(stream, visit, fmt::format("linear {}", what), fmt::format("[{},{}]x{}", shape.rows, in, out));
    const LinearSpec spec{.rows = shape.rows, .in = in, .out = out, .layout = preferred_layout(stream.device(), in, out)};
    bench.by(first(Linear::consider(stream.device(), spec)), true);
    const auto op = Linear::make(stream.device(), spec);
    float *src = bench.floats(shape.rows * in), *weight = bench.floats(in * out), *dst = bench.floats(shape.rows * out),
          *diff = bench.floats(in * out);
    const double flops = 2.0 * static_cast<double>(shape.rows) * static_cast<double>(in) * static_cast<double>(out);
    bench.product("forward", flops, [&] { op->forward(stream, src, weight, nullptr, nullptr, dst); });
    bench.product("input", flops, [&] { op->backward_input(stream, dst, weight, nullptr, src); });
    bench.product("weight", flops, [&] { op->backward_weight(stream, src, dst, diff, nullptr, true); });
  }

  static AttentionSpec attention_spec(const BenchShape& shape) {
    const std::int64_t packed = 3 * shape.width;
    return {.batch = shape.rows / shape.length,
            .length = shape.length,
            .heads = shape.heads,
            .kv_heads = shape.heads,
            .head_dim = shape.width / shape.heads,
            .q_stride = packed,
            .k_stride = packed,
            .v_stride = packed};
  }

  void attention() const {
    if (!wanted("attention")) return;
    const AttentionSpec spec = attention_spec(shape);
    Bench bench(stream, visit, "attention", fmt::format("[{},{},{}x{}]", spec.batch, spec.length, spec.heads, spec.head_dim));
    const std::int64_t n = shape.rows * shape.width, w = shape.width;
    float *x = bench.floats(3 * n), *y = bench.floats(n), *d = bench.floats(3 * n);
    // Two products forward, five backward, of which a causal mask needs half.
    const double product = static_cast<double>(shape.rows) * static_cast<double>(shape.length * shape.width);
    each_implementation<Attention>(stream, bench, spec, [&](Attention& op) {
      float *saved = bench.floats(static_cast<std::int64_t>(op.saved_bytes() / 4) + 1),
            *work = bench.floats(static_cast<std::int64_t>(op.workspace_bytes() / 4) + 1);
      bench.product("forward", 2 * product, [&] { op.forward(stream, x, x + w, x + 2 * w, y, saved, work); });
      bench.product("backward", 5 * product, [&] { op.backward(stream, x, x + w, x + 2 * w, y, y, saved, d, d + w, d + 2 * w, work); });
    });
  }

  void norm(const char* name, NormKind kind) const {
    if (!wanted(name)) return;
    Bench bench(stream, visit, name, text(shape.rows, shape.width));
    const std::int64_t n = shape.rows * shape.width;
    float *x = bench.floats(n), *y = bench.floats(n), *d = bench.floats(n), *gamma = bench.floats(shape.width),
          *beta = bench.floats(shape.width), *mean = bench.floats(shape.rows), *rstd = bench.floats(shape.rows),
          *to_gamma = bench.floats(shape.width), *to_beta = bench.floats(shape.width);
    const NormSpec spec{.kind = kind, .rows = shape.rows, .width = shape.width, .bias = kind == NormKind::layer, .add_diff_src = true};
    each_implementation<Norm>(stream, bench, spec, [&](Norm& op) {
      bench.pass("forward", 2 * n, [&] { op.forward(stream, x, gamma, beta, y, mean, rstd); });
      bench.pass("input", 4 * n, [&] { op.backward_input(stream, x, y, gamma, mean, rstd, d, d); });
      bench.pass("weight", 2 * n, [&] { op.backward_weight(stream, x, y, mean, rstd, to_gamma, to_beta, true); });
    });
  }

  void activation(const char* name, ActivationKind kind) const {
    if (!wanted(name)) return;
    const std::int64_t n = shape.rows * shape.width * 4;
    Bench bench(stream, visit, name, text(shape.rows, shape.width * 4));
    float *x = bench.floats(n), *y = bench.floats(n), *d = bench.floats(n);
    each_implementation<Activation>(stream, bench, ActivationSpec{kind, n}, [&](Activation& op) {
      bench.pass("forward", 2 * n, [&] { op.forward(stream, x, y); });
      bench.pass("input", 3 * n, [&] { op.backward_input(stream, x, y, d); });
    });
  }

  void gated_silu() const {
    if (!wanted("gated_silu")) return;
    const std::int64_t width = shape.width * 8 / 3, n = shape.rows * width;
    Bench bench(stream, visit, "gated_silu", text(shape.rows, width));
    float *x = bench.floats(2 * n), *y = bench.floats(n), *d = bench.floats(2 * n);
    const auto op = GatedSilu::make(stream.device(), {shape.rows, width, 2 * width});
    bench.pass("forward", 3 * n, [&] { op->forward(stream, x, x + width, y); });
    bench.pass("input", 5 * n, [&] { op->backward_input(stream, x, x + width, y, d, d + width); });
  }

  void softmax() const {
    if (!wanted("softmax")) return;
    const std::int64_t rows = shape.rows * shape.heads, n = rows * shape.length;
    Bench bench(stream, visit, "softmax", text(rows, shape.length));
    float *x = bench.floats(n), *y = bench.floats(n), *d = bench.floats(n);
    each_implementation<Softmax>(stream, bench, SoftmaxSpec{rows, shape.length}, [&](Softmax& op) {
      bench.pass("forward", 2 * n, [&] { op.forward(stream, x, y); });
      bench.pass("input", 3 * n, [&] { op.backward_input(stream, y, x, d); });
    });
  }

  void cross_entropy() const {
    if (!wanted("cross_entropy")) return;
    const std::int64_t n = shape.rows * shape.vocabulary;
    Bench bench(stream, visit, "cross_entropy", text(shape.rows, shape.vocabulary));
    float *x = bench.floats(n), *d = bench.floats(n), *losses = bench.floats(shape.rows);
    const std::int32_t* targets = bench.ids(shape.rows, shape.vocabulary);
    const auto op = CrossEntropy::make(stream.device(), {shape.rows, shape.vocabulary});
    bench.pass("forward", n, [&] { op->forward(stream, x, targets, losses); });
    bench.pass("both", 2 * n, [&] { op->forward_backward(stream, x, targets, 1.0f, losses, x); });
    bench.pass("both, apart", 2 * n, [&] { op->forward_backward(stream, x, targets, 1.0f, losses, d); });
  }

  void embedding() const {
    if (!wanted("embedding")) return;
    const std::int64_t n = shape.rows * shape.width;
    Bench bench(stream, visit, "embedding", fmt::format("{} of [{},{}]", shape.rows, shape.vocabulary, shape.width));
    float *tokens = bench.floats(shape.vocabulary * shape.width), *places = bench.floats(shape.length * shape.width), *y = bench.floats(n);
    const std::int32_t* ids = bench.ids(shape.rows, shape.vocabulary);
    const auto op = Embedding::make(stream.device(), {.batch = shape.rows / shape.length,
                                                      .length = shape.length,
                                                      .width = shape.width,
                                                      .vocabulary = shape.vocabulary,
                                                      .positions = shape.length});
    bench.pass("forward", 2 * n, [&] { op->forward(stream, ids, tokens, nullptr, nullptr, y); });
    bench.pass("weight", 6 * n, [&] { op->backward_weight(stream, ids, y, tokens, places, true); });
  }

  void flat() const {
    const std::int64_t n = shape.rows * shape.width;
    const auto one = [&](const char* name, std::int64_t count, std::int64_t passes, auto run) {
      if (!wanted(name)) return;
      Bench bench(stream, visit, name, fmt::format("{}", count));
      float *a = bench.floats(count), *b = bench.floats(count), *c = bench.floats(count), *d = bench.floats(count);
      bench.pass("", passes * count, [&] { run(a, b, c, d); });
    };
    one("add", n, 3, [&](float* a, float* b, float* c, float*) { add(stream, Type::f32, a, b, c, n); });
    one("dropout", n, 2, [&](float* a, float* b, float*, float*) { dropout(stream, Type::f32, a, nullptr, b, n, 0.1f, 1, 0); });
    one("sum_rows", 4 * n, 1,
        [&](float* a, float* b, float*, float*) { sum_rows(stream, Type::f32, a, b, shape.rows, 4 * shape.width, true); });
    const std::int64_t parameters = std::min<std::int64_t>(12 * shape.width * shape.width * 12, 16 << 20);
    one("sum_squares", parameters, 1, [&](float* a, float* b, float* c, float*) { sum_squares(stream, a, b, parameters, c); });
    one("scale", parameters, 2, [&](float* a, float*, float*, float*) { scale(stream, Type::f32, a, 1.0f, parameters); });
    one("adamw", parameters, 7, [&](float* a, float* b, float* c, float* d) { adamw(stream, {}, a, b, c, d, nullptr, parameters); });
    one("sgd", parameters, 5, [&](float* a, float* b, float* c, float*) { sgd(stream, {.momentum = 0.9f}, a, b, c, nullptr, parameters); });
    const std::int64_t side = shape.width;
    one("transpose", 4 * side * side, 2, [&](float* a, float* b, float*, float*) { transpose(stream, a, b, side, 4 * side); });
  }
};

}  // namespace

void for_each_case(Stream& stream, const BenchShape& shape, const std::string& only, const std::function<void(const BenchCase&)>& visit) {
  const Cases cases{stream, shape, only, visit};
  cases.linear("qkv", shape.width, 3 * shape.width);
  cases.linear("up", shape.width, 4 * shape.width);
  cases.linear("down", 4 * shape.width, shape.width);
  cases.linear("head", shape.width, shape.vocabulary);
  cases.attention();
  cases.norm("layer_norm", NormKind::layer);
  cases.norm("rms_norm", NormKind::rms);
  cases.activation("gelu_tanh", ActivationKind::gelu_tanh);
  cases.activation("gelu_erf", ActivationKind::gelu_erf);
  cases.activation("silu", ActivationKind::silu);
  cases.gated_silu();
  cases.softmax();
  cases.cross_entropy();
  cases.embedding();
  cases.flat();
}

std::vector<BenchExplained> explain_ops(const Device& device, const BenchShape& shape, const std::string& only) {
  std::vector<BenchExplained> all;
  const auto add = [&](const char* op, std::vector<Considered> considered) {
    if (only.empty() || only == op) all.push_back({op, std::move(considered)});
  };
  const std::int64_t rows = shape.rows, width = shape.width, wide = 4 * width;
  add("linear", Linear::consider(device, {.rows = rows, .in = width, .out = wide, .layout = preferred_layout(device, width, wide)}));
  add("attention", Attention::consider(device, Cases::attention_spec(shape)));
  add("layer_norm", Norm::consider(device, {.rows = rows, .width = width}));
  add("rms_norm", Norm::consider(device, {.kind = NormKind::rms, .rows = rows, .width = width, .bias = false}));
  add("gelu_tanh", Activation::consider(device, {ActivationKind::gelu_tanh, rows * wide}));
  add("gelu_erf", Activation::consider(device, {ActivationKind::gelu_erf, rows * wide}));
  add("silu", Activation::consider(device, {ActivationKind::silu, rows * wide}));
  add("softmax", Softmax::consider(device, {rows * shape.heads, shape.length}));
  for (const char* ours :
       {"gated_silu", "cross_entropy", "embedding", "add", "dropout", "sum_rows", "sum_squares", "scale", "adamw", "sgd", "transpose"})
    add(ours, {{"sycl", {}}});
  return all;
}

}  // namespace ppengine::cli
