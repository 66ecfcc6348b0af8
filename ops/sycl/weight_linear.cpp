// A linear layer of inference over few rows, bound by the reading of the weights: one kernel.
#include <fmt/core.h>

#include <ppengine/ops/cpu/linear_step.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

std::string kernel_name(const WeightLinearSpec& spec) {
  const int rows = spec.rows <= 1 ? 1 : spec.rows <= 2 ? 2 : spec.rows <= 4 ? 4 : 8;
  return fmt::format("few_rows_{}_{}", name_of(spec.weight.storage.format), rows);
}

// 4-bit weights are widened first: the kernel's order of additions is the same for any number of rows, that of Linear is not.
class FewRowsByKernel final : public WeightLinear {
 public:
  FewRowsByKernel(Device& device, const WeightLinearSpec& spec)
      : stored_(spec.weight),
        widens_(stored_.storage.format == WeightFormat::int4),
        spec_(widens_ ? with_wide_weight(spec) : spec),
        kernel_(find(device, spec_)),
        groups_(static_cast<std::size_t>(divide_up(spec.weight.out, outputs))) {}
  std::size_t workspace_bytes() const override { return widens_ ? spec_.weight.bytes() : 0; }

  void forward(Stream& stream, const Operands& given) override {
    Operands at = given;
    if (widens_) {
      widen(stream, stored_, given.weight, static_cast<float*>(given.workspace));
      at.weight = given.workspace;
    }
    const cpu::LinearStep s = cpu::step_of(spec_, at);
    kernel_.launch(stream, groups_, group_size, s.src, s.weight, s.scales, s.bias, s.residual, s.gate, s.gamma, s.beta, s.dst, spec_.rows,
                   s.in, s.out, s.group, s.epsilon, int{s.centered}, s.activation, outputs);
  }

 private:
  static constexpr std::size_t group_size = 128;  // four sub-groups of 32 with two outputs each; narrower ones take turns
  static constexpr std::int64_t outputs = 8;
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
  std::size_t groups_;
};

Refusal refuse(const Device& device, const WeightLinearSpec& spec) {
  if (spec.rows > WeightLinear::few_rows) return "it is for up to 8 rows";
  if (spec.weight.storage.format == WeightFormat::int4 && !cpu::refusal(device, Type::f32)) return "CPUs with vectors widen int4 in panels";
  return {};
}

}  // namespace

constexpr Implementation<WeightLinear, WeightLinearSpec> sycl_weight_linear{"sycl", refuse, construct<FewRowsByKernel>};

}  // namespace ppengine::ops
