// A linear layer of inference: one kernel for few rows, composed of other ops for many.
#include <ppengine/ops/weight_linear.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/linear.hpp>

namespace ppengine::ops {
namespace {

class FewRows final : public WeightLinear {
 public:
  FewRows(Device& device, const WeightLinearSpec& spec) : spec_(spec), kernel_(find(device, spec)) {
    const int64_t out = spec.weight.out;
    constexpr int64_t gpu_group = 128, gpu_outputs = 8;  // four sub-groups of 32 with two outputs each; narrower ones take turns
    constexpr int64_t cpu_outputs = 16;                  // as in kernels/few_rows_cpu.hpp: between epilogues
    const bool cpu = device.info().is_cpu;
    chunk_ = cpu ? cpu_chunk(device, out, cpu_outputs) : gpu_outputs;
    size_ = cpu ? 1 : gpu_group;
    groups_ = static_cast<size_t>(divide_up(out, chunk_));
  }
  size_t workspace_bytes() const override { return 0; }

  void forward(Stream& stream, const Operands& at) override {
    const int centered = spec_.norm && spec_.norm->kind == NormKind::layer ? 1 : 0;
    kernel_.launch(stream, groups_, size_, at.src, at.weight, spec_.weight.scales(at.weight), spec_.bias ? at.bias : nullptr,
                   spec_.residual ? at.residual : nullptr, spec_.gated ? at.gate : nullptr, at.gamma,
                   spec_.norm && spec_.norm->bias ? at.beta : nullptr, at.dst, spec_.rows, spec_.weight.in, spec_.weight.out,
                   spec_.weight.group(), spec_.norm ? spec_.norm->epsilon : 0.0f, centered, activation(), chunk_);
  }

 private:
  // As in kernels/few_rows.hpp.
  int activation() const {
    if (spec_.gated) return 3;
    if (!spec_.activation) return 0;
    switch (*spec_.activation) {
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
  static const Kernel& find(Device& device, const WeightLinearSpec& spec) {
    const char* format = name_of(spec.weight.storage.format);
    const int rows = spec.rows <= 1 ? 1 : spec.rows <= 2 ? 2 : spec.rows <= 4 ? 4 : 8;
    const bool wide = spec.weight.in % 4 == 0 && spec.weight.group() % 4 == 0;
    const std::string file = device.info().is_cpu ? fmt::format("few_rows_{}", format) : wide ? "few_rows_wide" : "few_rows_narrow";
    return device.kernels().get(file, fmt::format("few_rows_{}_{}{}", format, rows, spec.norm ? "_norm" : ""));
  }

  WeightLinearSpec spec_;
  const Kernel& kernel_;
  int64_t chunk_;
  size_t groups_, size_;
};

class ManyRows final : public WeightLinear {
 public:
  ManyRows(Device& device, const WeightLinearSpec& spec) : spec_(spec) {
    const int64_t rows = spec.rows, in = spec.weight.in, out = spec.weight.out;
    linear_ = Linear::make(device, {rows, in, out, WeightLayout::out_in, spec.bias, spec.residual, false, Type::f32});
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
    if (spec.weight.storage.format != WeightFormat::f32) wide_at_ = take(out * in);
  }
  size_t workspace_bytes() const override { return workspace_; }

  void forward(Stream& stream, const Operands& at) override {
    const auto place = [&](size_t offset) { return reinterpret_cast<float*>(static_cast<std::byte*>(at.workspace) + offset); };
    const float* src = at.src;
    if (norm_) {
      norm_->forward(stream, at.src, at.gamma, at.beta, place(normed_at_), place(mean_at_), place(rstd_at_));
      src = place(normed_at_);
    }
    const void* weight = at.weight;
    if (spec_.weight.storage.format != WeightFormat::f32) {
      widen(stream, spec_.weight, at.weight, place(wide_at_));
      weight = place(wide_at_);
    }
    float* const out = gated_ ? place(up_at_) : at.dst;
    linear_->forward(stream, src, weight, at.bias, at.residual, out);
    if (activation_) activation_->forward(stream, out, out);
    if (gated_) gated_->forward(stream, at.gate, out, at.dst);
  }

 private:
  WeightLinearSpec spec_;
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
  if (spec.rows <= few_rows) return std::make_unique<FewRows>(device, spec);
  return std::make_unique<ManyRows>(device, spec);
}

}  // namespace ppengine::ops
