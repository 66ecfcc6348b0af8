// A linear layer of inference over few rows, bound by the reading of the weights: a step among those of decoding on CPUs, a kernel on GPUs.
#include <fmt/core.h>

#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/detail/step_chain.hpp>

namespace ppengine::ops {
namespace {

std::string kernel_name(const WeightLinearSpec& spec) {
  const int rows = spec.rows <= 1 ? 1 : spec.rows <= 2 ? 2 : spec.rows <= 4 ? 4 : 8;
  return fmt::format("few_rows_{}_{}", name_of(spec.weight.storage.format), rows);
}

class FewRowsOnCpu final : public WeightLinear {
 public:
  FewRowsOnCpu(Device& device, const WeightLinearSpec& spec) : spec_(spec), chunk_(cpu_chunk(device, spec.weight.out, outputs)) {}
  size_t workspace_bytes() const override { return 0; }
  void forward(Stream& stream, const Operands& at) override {
    StepChain::of(stream).add(stream, step_of(spec_, at, chunk_), spec_.weight.storage.format, spec_.rows);
  }

 private:
  static constexpr int64_t outputs = 16;  // as in kernels/few_rows_cpu.hpp: between epilogues
  WeightLinearSpec spec_;
  int64_t chunk_;
};

class FewRowsOnGpu final : public WeightLinear {
 public:
  FewRowsOnGpu(Device& device, const WeightLinearSpec& spec)
      : spec_(spec), kernel_(find(device, spec)), groups_(static_cast<size_t>(divide_up(spec.weight.out, outputs))) {}
  size_t workspace_bytes() const override { return 0; }

  void forward(Stream& stream, const Operands& at) override {
    const LinearStep s = step_of(spec_, at, outputs);
    kernel_.launch(stream, groups_, group_size, s.src, s.weight, s.scales, s.bias, s.residual, s.gate, s.gamma, s.beta, s.dst, spec_.rows,
                   s.in, s.out, s.group, s.epsilon, s.centered, s.activation, s.chunk);
  }

 private:
  static constexpr size_t group_size = 128;  // four sub-groups of 32 with two outputs each; narrower ones take turns
  static constexpr int64_t outputs = 8;
  static const Kernel& find(Device& device, const WeightLinearSpec& spec) {
    const bool wide = spec.weight.in % 4 == 0 && spec.weight.group() % 4 == 0;
    return device.kernels().get(wide ? "few_rows_wide" : "few_rows_narrow", kernel_name(spec) + (spec.norm ? "_norm" : ""));
  }

  WeightLinearSpec spec_;
  const Kernel& kernel_;
  size_t groups_;
};

bool is_few(const WeightLinearSpec& spec) { return spec.rows <= WeightLinear::few_rows; }

Refusal refuse_step(const Device& device, const WeightLinearSpec& spec) {
  if (!device.info().is_cpu) return "steps are made for CPUs";
  if (!is_few(spec)) return "it is for up to 8 rows";
  if (spec.weight.storage.format == WeightFormat::int4 && !cpu::refusal(device, Type::f32)) return "the loops widen int4 faster in panels";
  return {};
}

Refusal refuse_kernel(const Device& device, const WeightLinearSpec& spec) {
  if (device.info().is_cpu) return "the kernel is for GPUs";
  if (!is_few(spec)) return "it is for up to 8 rows";
  if (spec.weight.storage.format == WeightFormat::int4) return "int4 is widened first on GPUs";
  return {};
}

}  // namespace

constexpr Implementation<WeightLinear, WeightLinearSpec> step_weight_linear{"sycl step", refuse_step, construct<FewRowsOnCpu>};
constexpr Implementation<WeightLinear, WeightLinearSpec> sycl_weight_linear{"sycl", refuse_kernel, construct<FewRowsOnGpu>};

}  // namespace ppengine::ops
