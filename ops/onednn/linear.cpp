// Linear by oneDNN.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/onednn/primitive.hpp>
#include <ppengine/ops/onednn/sgemm.hpp>

namespace ppengine::ops {
namespace {

using onednn::Desc;
using onednn::Primitive;
using onednn::Product;

// The three products of a linear layer, as views on the same matrices. W is always seen as [in,out]; the layout is in its strides.
struct Products {
  explicit Products(const LinearSpec& spec) {
    const std::int64_t rows = spec.rows, in = spec.in, out = spec.out;
    const auto type = onednn::data_type(spec.type);
    const auto f32 = dnnl::memory::data_type::f32;
    const bool out_in = spec.layout == WeightLayout::out_in;
    const Desc src({rows, in}, type, {in, 1}), dst({rows, out}, type, {out, 1});
    forward = {src, Desc({in, out}, type, out_in ? onednn::Dims{1, in} : onednn::Dims{out, 1}), dst, {}, {}};
    if (spec.bias) forward.bias = Desc({1, out}, type, {out, 1});
    backward_input = {dst, Desc({out, in}, type, out_in ? onednn::Dims{in, 1} : onednn::Dims{1, out}), src, {}, {}};
    // In W's own layout, so that the result is written along its rows.
    if (out_in)
      backward_weight = {Desc({out, rows}, type, {1, out}), src, Desc({out, in}, f32, {in, 1}), {}, {}};
    else
      backward_weight = {Desc({in, rows}, type, {1, in}), dst, Desc({in, out}, f32, {out, 1}), {}, {}};
  }
  Product forward, backward_input, backward_weight;
};

Product accumulating(Product product) {
  product.accumulate = true;
  return product;
}
Product adding(Product product) {
  product.add = product.c;
  return product;
}

// The input gradient by sgemm: f32 on CPUs, at least one row.
void sgemm_backward_input(Stream& stream, const LinearSpec& spec, const void* diff_dst, const void* weight, const void* add,
                          void* diff_src) {
  const bool out_in = spec.layout == WeightLayout::out_in;
  if (spec.add_diff_src) stream.copy(diff_src, add, static_cast<std::size_t>(spec.rows * spec.in) * sizeof(float));
  onednn::sgemm(stream, {false, !out_in, spec.rows, spec.in, spec.out, diff_dst, spec.out, weight, out_in ? spec.in : spec.out, diff_src,
                         spec.in, spec.add_diff_src});
}

class OnednnLinear : public Linear {
 public:
  OnednnLinear(Device& device, const LinearSpec& spec) : spec_(spec), use_sgemm_(onednn::has_sgemm(device, spec.type)) {
    if (spec.rows == 0) return;
    const Products products(spec);
    forward_ = make_product(device, spec.residual ? adding(products.forward) : products.forward);
    if (spec.residual) forward_in_place_ = make_product(device, accumulating(products.forward));
    if (use_sgemm_) return;
    backward_input_ = make_product(device, spec.add_diff_src ? adding(products.backward_input) : products.backward_input);
    if (spec.add_diff_src) backward_input_in_place_ = make_product(device, accumulating(products.backward_input));
    overwrite_weight_ = make_product(device, products.backward_weight);
    accumulate_weight_ = make_product(device, accumulating(products.backward_weight));
  }

  void forward(Stream& stream, const void* src, const void* weight, const void* bias, const void* residual, void* dst) override {
    if (spec_.rows == 0) return;
    if (spec_.residual && residual == dst)
      spec_.bias ? forward_in_place_.run(stream, {src, weight, dst, bias}) : forward_in_place_.run(stream, {src, weight, dst});
    else if (spec_.residual)
      spec_.bias ? forward_.run(stream, {src, weight, dst, bias, residual}) : forward_.run(stream, {src, weight, dst, residual});
    else
      spec_.bias ? forward_.run(stream, {src, weight, dst, bias}) : forward_.run(stream, {src, weight, dst});
  }

  void backward_input(Stream& stream, const void* diff_dst, const void* weight, const void* add, void* diff_src) override {
    if (spec_.rows == 0) return;
    if (use_sgemm_) return sgemm_backward_input(stream, spec_, diff_dst, weight, add, diff_src);
    if (!spec_.add_diff_src)
      backward_input_.run(stream, {diff_dst, weight, diff_src});
    else if (add == diff_src)
      backward_input_in_place_.run(stream, {diff_dst, weight, diff_src});
    else
      backward_input_.run(stream, {diff_dst, weight, diff_src, add});
  }

  void backward_weight(Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias,
                       bool accumulate) override {
    if (spec_.rows == 0) return clear_gradients(stream, spec_, diff_weight, diff_bias, accumulate);
    const bool out_in = spec_.layout == WeightLayout::out_in;
    const void* const a = out_in ? diff_dst : src;
    const void* const b = out_in ? src : diff_dst;
    if (use_sgemm_) {
      const std::int64_t m = out_in ? spec_.out : spec_.in, n = out_in ? spec_.in : spec_.out;
      onednn::sgemm(stream, {true, false, m, n, spec_.rows, a, m, b, n, diff_weight, n, accumulate});
    } else {
      (accumulate ? accumulate_weight_ : overwrite_weight_).run(stream, {a, b, diff_weight});
    }
    if (spec_.bias) sum_rows(stream, spec_.type, diff_dst, diff_bias, spec_.rows, spec_.out, accumulate);
  }

 private:
  LinearSpec spec_;
  bool use_sgemm_;
  Primitive forward_, forward_in_place_, backward_input_, backward_input_in_place_, overwrite_weight_, accumulate_weight_;
};

Refusal refuse(const Device& device, const LinearSpec& spec) {
  if (auto refusal = onednn::device_refusal(device)) return refusal;
  if (spec.type == Type::f32 || spec.rows == 0) return {};
  const Products products(spec);
  for (const Product* product : {&products.forward, &products.backward_input, &products.backward_weight})
    if (auto refusal = product_refusal(device, *product)) return refusal;
  return {};
}

}  // namespace

constexpr Implementation<Linear, LinearSpec> onednn_linear{"onednn", refuse, construct<OnednnLinear>};

}  // namespace ppengine::ops
