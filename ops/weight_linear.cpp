// A linear layer of inference: one kernel for few rows, composed of other ops for many.
#include <ppengine/ops/weight_linear.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/cpu/step_chain.hpp>
#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/linear.hpp>

namespace ppengine::ops {
namespace {

// As in kernels/few_rows_shared.hpp.
int activation_code(const WeightLinearSpec& spec) {
  if (spec.gated) return 3;
  if (!spec.activation) return 0;
  switch (*spec.activation) {
    case ActivationKind::gelu_tanh:
      return 1;
    case ActivationKind::gelu_erf:
      return 2;
    case ActivationKind::silu:
      return 3;
    case ActivationKind::relu:
      return 4;
  }
  return 0;
}

std::string kernel_name(const WeightLinearSpec& spec) {
  const int rows = spec.rows <= 1 ? 1 : spec.rows <= 2 ? 2 : spec.rows <= 4 ? 4 : 8;
  return fmt::format("few_rows_{}_{}", name_of(spec.weight.storage.format), rows);
}

cpu::LinearStep step_of(const WeightLinearSpec& spec, const WeightLinear::Operands& at) {
  cpu::LinearStep step{};
  step.src = at.src;
  step.weight = at.weight;
  step.scales = spec.weight.scales(at.weight);
  step.bias = spec.bias ? at.bias : nullptr;
  step.residual = spec.residual ? at.residual : nullptr;
  step.gate = spec.gated ? at.gate : nullptr;
  step.gamma = spec.norm ? at.gamma : nullptr;
  step.beta = spec.norm && spec.norm->bias ? at.beta : nullptr;
  step.dst = at.dst;
  step.in = spec.weight.in;
  step.out = spec.weight.out;
  step.group = spec.weight.group();
  step.epsilon = spec.norm ? spec.norm->epsilon : 0.0f;
  step.centered = spec.norm && spec.norm->kind == NormKind::layer;
  step.activation = activation_code(spec);
  return step;
}

class FewRowsByLoops final : public WeightLinear {
 public:
  explicit FewRowsByLoops(const WeightLinearSpec& spec) : spec_(spec) {}
  size_t workspace_bytes() const override { return 0; }
  void forward(Stream& stream, const Operands& at) override {
    cpu::StepChain::of(stream).add(stream, step_of(spec_, at), spec_.weight.storage.format, spec_.rows);
  }

 private:
  WeightLinearSpec spec_;
};

// Any number of rows: each has the same bits in whatever company.
class ByBytes final : public WeightLinear {
 public:
  explicit ByBytes(const WeightLinearSpec& spec) : spec_(spec) {}
  size_t workspace_bytes() const override { return 0; }
  void forward(Stream& stream, const Operands& at) override {
    cpu::StepChain::of(stream).add_by_bytes(stream, step_of(spec_, at), spec_.rows);
  }

 private:
  WeightLinearSpec spec_;
};

// 4-bit weights are widened first: the kernel's order of additions is the same for any number of rows, that of Linear is not.
class FewRowsByKernel final : public WeightLinear {
 public:
  FewRowsByKernel(Device& device, const WeightLinearSpec& spec)
      : stored_(spec.weight),
        widens_(stored_.storage.format == WeightFormat::int4),
        spec_(widens_ ? with_wide_weight(spec) : spec),
        kernel_(find(device, spec_)),
        groups_(static_cast<size_t>(divide_up(spec.weight.out, outputs))) {}
  size_t workspace_bytes() const override { return widens_ ? spec_.weight.bytes() : 0; }

  void forward(Stream& stream, const Operands& given) override {
    Operands at = given;
    if (widens_) {
      widen(stream, stored_, given.weight, static_cast<float*>(given.workspace));
      at.weight = given.workspace;
    }
    const cpu::LinearStep s = step_of(spec_, at);
    kernel_.launch(stream, groups_, group_size, s.src, s.weight, s.scales, s.bias, s.residual, s.gate, s.gamma, s.beta, s.dst, spec_.rows,
                   s.in, s.out, s.group, s.epsilon, int{s.centered}, s.activation, outputs);
  }

 private:
  static constexpr size_t group_size = 128;  // four sub-groups of 32 with two outputs each; narrower ones take turns
  static constexpr int64_t outputs = 8;
  static WeightLinearSpec with_wide_weight(WeightLinearSpec spec) {
    spec.weight.storage = {WeightFormat::f32, 0};
    return spec;
  }
  static const Kernel& find(Device& device, const WeightLinearSpec& spec) {
    const bool wide = spec.weight.in % 4 == 0 && spec.weight.group() % 4 == 0;
    return device.kernels().get(wide ? "few_rows_wide" : "few_rows_narrow", kernel_name(spec) + (spec.norm ? "_norm" : ""));
  }

  PackedWeight stored_;
  bool widens_;
  WeightLinearSpec spec_;
  const Kernel& kernel_;
  size_t groups_;
};

class ManyRows final : public WeightLinear {
 public:
  ManyRows(Device& device, const WeightLinearSpec& spec)
      : spec_(spec), narrow_(spec.weight.storage.format != WeightFormat::f32), by_panels_(narrow_ && !cpu::refusal(device, Type::f32)) {
    const int64_t rows = spec.rows, in = spec.weight.in, out = spec.weight.out;
    if (!by_panels_) linear_ = Linear::make(device, {rows, in, out, WeightLayout::out_in, spec.bias, spec.residual, false, Type::f32});
    if (spec.norm) norm_ = Norm::make(device, {spec.norm->kind, rows, in, spec.norm->epsilon, spec.norm->bias, false, Type::f32});
    if (spec.activation) activation_ = Activation::make(device, {*spec.activation, rows * out, Type::f32});
    if (spec.gated) gated_ = GatedSilu::make(device, {rows, out, out, Type::f32});
    const auto take = [&](int64_t elements) {
      const size_t at = workspace_;
      workspace_ += align_up(static_cast<size_t>(elements) * sizeof(float));
      return at;
    };
    if (spec.norm) normed_at_ = take(rows * in), mean_at_ = take(rows), rstd_at_ = take(rows);
    if (spec.gated) up_at_ = take(rows * out);
    if (narrow_ && !by_panels_) wide_at_ = take(out * in);
  }
  size_t workspace_bytes() const override { return workspace_; }

  void forward(Stream& stream, const Operands& at) override {
    const auto place = [&](size_t offset) { return reinterpret_cast<float*>(static_cast<std::byte*>(at.workspace) + offset); };
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
  size_t workspace_ = 0, normed_at_ = 0, mean_at_ = 0, rstd_at_ = 0, up_at_ = 0, wide_at_ = 0;
};

}  // namespace

std::unique_ptr<WeightLinear> WeightLinear::make(Device& device, const WeightLinearSpec& spec) {
  PPENGINE_ASSERT(spec.rows > 0 && spec.weight.in > 0 && spec.weight.out > 0);
  PPENGINE_ASSERT(!(spec.residual && (spec.activation || spec.gated)) && !(spec.activation && spec.gated));
  const bool int4 = spec.weight.storage.format == WeightFormat::int4, loops = !cpu::refusal(device, Type::f32);
  if (int4 && loops && spec.byte_inputs) return std::make_unique<ByBytes>(spec);
  if (spec.rows > few_rows) return std::make_unique<ManyRows>(device, spec);
  if (int4 && loops) return std::make_unique<ManyRows>(device, spec);  // nothing faster in f32 arithmetic
  if (loops) return std::make_unique<FewRowsByLoops>(spec);
  return std::make_unique<FewRowsByKernel>(device, spec);
}

}  // namespace ppengine::ops
