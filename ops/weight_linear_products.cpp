// A linear layer of inference over many rows (prefill, evaluation): composed of other ops.
#include <ppengine/ops/cpu/gemm.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

class ManyRows final : public WeightLinear {
 public:
  ManyRows(Device& device, const WeightLinearSpec& spec)
      : spec_(spec), narrow_(spec.weight.storage.format != WeightFormat::f32), by_panels_(narrow_ && !cpu::refusal(device, Type::f32)) {
    const std::int64_t rows = spec.rows, in = spec.weight.in, out = spec.weight.out;
    if (!by_panels_) linear_ = Linear::make(device, {rows, in, out, WeightLayout::out_in, spec.bias, spec.residual, false, Type::f32});
    if (spec.norm) norm_ = Norm::make(device, {spec.norm->kind, rows, in, spec.norm->epsilon, spec.norm->bias, false, Type::f32});
    if (spec.activation) activation_ = Activation::make(device, {*spec.activation, rows * out, Type::f32});
    if (spec.gated) gated_ = GatedSilu::make(device, {rows, out, out, Type::f32});
    const auto take = [&](std::int64_t elements) {
      const std::size_t at = workspace_;
      workspace_ += align_up(static_cast<std::size_t>(elements) * sizeof(float));
      return at;
    };
    if (spec.norm) normed_at_ = take(rows * in), mean_at_ = take(rows), rstd_at_ = take(rows);
    if (spec.gated) up_at_ = take(rows * out);
    if (narrow_ && !by_panels_) wide_at_ = take(out * in);
  }
  std::size_t workspace_bytes() const override { return workspace_; }

  void forward(Stream& stream, const Operands& at) override {
    const auto place = [&](std::size_t offset) { return reinterpret_cast<float*>(static_cast<std::byte*>(at.workspace) + offset); };
    const float* src = at.src;
    if (norm_) {
      norm_->forward(stream, at.src, at.gamma, at.beta, place(normed_at_), place(mean_at_), place(rstd_at_));
      src = place(normed_at_);
    }
    float* const out = gated_ ? place(up_at_) : at.dst;
    if (by_panels_) {
      multiply_by_panels(stream, src, at, out);
    } else if (narrow_) {
      widen(stream, spec_.weight, at.weight, place(wide_at_));
      linear_->forward(stream, src, place(wide_at_), at.bias, at.residual, out);
    } else {
      linear_->forward(stream, src, at.weight, at.bias, at.residual, out);
    }
    if (activation_) activation_->forward(stream, out, out);
    if (gated_) gated_->forward(stream, at.gate, out, at.dst);
  }

 private:
  // On CPUs narrow weights are widened as they are packed for the product.
  void multiply_by_panels(Stream& stream, const float* src, const Operands& at, float* dst) const {
    stream.wait();
    cpu::gemm({spec_.rows, spec_.weight.out, spec_.weight.in, src, false, static_cast<const float*>(at.weight), true,
               spec_.bias ? at.bias : nullptr, spec_.residual ? at.residual : nullptr, dst, &spec_.weight});
  }

  WeightLinearSpec spec_;
  bool narrow_, by_panels_;
  std::unique_ptr<Linear> linear_;
  std::unique_ptr<Norm> norm_;
  std::unique_ptr<Activation> activation_;
  std::unique_ptr<GatedSilu> gated_;
  std::size_t workspace_ = 0, normed_at_ = 0, mean_at_ = 0, rstd_at_ = 0, up_at_ = 0, wide_at_ = 0;
};

}  // namespace

constexpr Implementation<WeightLinear, WeightLinearSpec> products_weight_linear{"products", takes_all, construct<ManyRows>};

}  // namespace ppengine::ops
