// Linear on our own kernels.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/sycl/product.hpp>

namespace ppengine::ops {
namespace {

class SyclLinear : public Linear {
 public:
  SyclLinear(Device& device, const LinearSpec& spec) : spec_(spec) {
    const std::int64_t rows = spec.rows, in = spec.in, out = spec.out;
    const bool out_in = spec.layout == WeightLayout::out_in;
    const std::int64_t w_in = out_in ? 1 : out, w_out = out_in ? in : 1;
    forward_ = {device, spec.type, spec.type, own::plain_shape(rows, out, in, in, 1, w_in, w_out)};
    backward_input_ = {device, spec.type, spec.type, own::plain_shape(rows, in, out, out, 1, w_out, w_in)};
    const auto weight = out_in ? own::plain_shape(out, in, rows, 1, out, in, 1) : own::plain_shape(in, out, rows, 1, in, out, 1);
    backward_weight_ = {device, spec.type, Type::f32, weight};
  }

  void forward(Stream& stream, const void* src, const void* weight, const void* bias, const void* residual, void* dst) override {
    forward_.run(stream, src, weight, dst, spec_.bias ? bias : nullptr, spec_.residual ? residual : nullptr, false);
  }
  void backward_input(Stream& stream, const void* diff_dst, const void* weight, const void* add, void* diff_src) override {
    backward_input_.run(stream, diff_dst, weight, diff_src, nullptr, spec_.add_diff_src ? add : nullptr, false);
  }
  void backward_weight(Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias,
                       bool accumulate) override {
    if (spec_.rows == 0) return clear_gradients(stream, spec_, diff_weight, diff_bias, accumulate);
    const bool out_in = spec_.layout == WeightLayout::out_in;
    backward_weight_.run(stream, out_in ? diff_dst : src, out_in ? src : diff_dst, diff_weight, nullptr, nullptr, accumulate);
    if (spec_.bias) sum_rows(stream, spec_.type, diff_dst, diff_bias, spec_.rows, spec_.out, accumulate);
  }

 private:
  LinearSpec spec_;
  own::Product forward_, backward_input_, backward_weight_;
};

Refusal refuse(const Device&, const LinearSpec& spec) {
  if (spec.type == Type::i32) return "integers are not multiplied";
  return {};
}

}  // namespace

constexpr Implementation<Linear, LinearSpec> sycl_linear{"sycl", refuse, construct<SyclLinear>};

}  // namespace ppengine::ops
