// Linear in f32 on CPUs with vectors: each of its three products by cpu::gemm or oneDNN's sgemm, as measured for its shape.
#include <optional>

#include <ppengine/ops/cpu/product_choice.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

using cpu::floats;
using cpu::Gemm;

Gemm forward_of(const LinearSpec& s) {
  return {s.rows, s.out, s.in, nullptr, false, nullptr, s.layout == WeightLayout::out_in, nullptr, nullptr, nullptr};
}
Gemm backward_input_of(const LinearSpec& s) {
  return {s.rows, s.in, s.out, nullptr, false, nullptr, s.layout != WeightLayout::out_in, nullptr, nullptr, nullptr};
}
// In the layout of the weight.
Gemm backward_weight_of(const LinearSpec& s) {
  const bool out_in = s.layout == WeightLayout::out_in;
  return {out_in ? s.out : s.in, out_in ? s.in : s.out, s.rows, nullptr, true, nullptr, false, nullptr, nullptr, nullptr};
}

// Prompts have any number of rows: two shapes per doubling are measured, and what is in between goes by the larger one.
LinearSpec measured_for(LinearSpec spec) {
  std::int64_t rows = 64;
  while (rows < spec.rows) rows *= 2;
  spec.rows = spec.rows <= rows / 4 * 3 ? rows / 4 * 3 : rows;
  return spec;
}

class CpuLinear : public Linear {
 public:
  CpuLinear(Device& device, const LinearSpec& spec) : spec_(spec) {
    Stream stream(device.shared_from_this());
    forward_ = choose(stream, forward_of(measured_for(spec)));
  }

  void forward(Stream& stream, const void* src, const void* weight, const void* bias, const void* residual, void* dst) override {
    Gemm product = forward_of(spec_);
    product.a = floats(src), product.b = floats(weight), product.c = floats(dst);
    product.bias = spec_.bias ? floats(bias) : nullptr;
    product.add = spec_.residual ? floats(residual) : nullptr;
    multiply(stream, product, forward_);
  }
  void backward_input(Stream& stream, const void* diff_dst, const void* weight, const void* add, void* diff_src) override {
    Gemm product = backward_input_of(spec_);
    product.a = floats(diff_dst), product.b = floats(weight), product.c = floats(diff_src);
    product.add = spec_.add_diff_src ? floats(add) : nullptr;
    if (!backward_input_) backward_input_ = choose(stream, backward_input_of(measured_for(spec_)));
    multiply(stream, product, *backward_input_);
  }
  void backward_weight(Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias,
                       bool accumulate) override {
    const bool out_in = spec_.layout == WeightLayout::out_in;
    Gemm product = backward_weight_of(spec_);
    product.a = floats(out_in ? diff_dst : src), product.b = floats(out_in ? src : diff_dst), product.c = diff_weight;
    product.add = accumulate ? diff_weight : nullptr;
    if (!backward_weight_) backward_weight_ = choose(stream, backward_weight_of(measured_for(spec_)));
    multiply(stream, product, *backward_weight_);
    if (spec_.bias) cpu::sum_rows(floats(diff_dst), spec_.rows, spec_.out, diff_bias, accumulate);
  }

 private:
  static cpu::ProductChoice choose(Stream& stream, const Gemm& product) { return cpu::ProductTable::of_this_cpu().choose(stream, product); }

  LinearSpec spec_;
  cpu::ProductChoice forward_;
  std::optional<cpu::ProductChoice> backward_input_, backward_weight_;  // inference does not wait for what it does not use
};

Refusal refuse(const Device& device, const LinearSpec& spec) {
  constexpr std::int64_t least_rows = 64;
  if (auto refusal = cpu::refusal(device, spec.type)) return refusal;
  if (spec.rows < least_rows) return "packing the weights does not pay for less than 64 rows";
  return {};
}

}  // namespace

constexpr Implementation<Linear, LinearSpec> cpu_linear{"cpu", refuse, construct<CpuLinear>};

std::vector<Considered> cpu::explain_products(Device& device, const LinearSpec& spec) {
  if (refuse(device, spec)) return {};
  Stream stream(device.shared_from_this());
  auto& table = ProductTable::of_this_cpu();
  const LinearSpec like = measured_for(spec);
  return {{"forward", table.choose(stream, forward_of(like)).text()},
          {"dX", table.choose(stream, backward_input_of(like)).text()},
          {"dW", table.choose(stream, backward_weight_of(like)).text()}};
}

}  // namespace ppengine::ops
