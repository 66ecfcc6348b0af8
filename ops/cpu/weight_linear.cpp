// Linear layers of inference as steps of decoding: over few rows in f32 arithmetic, and with 4-bit weights over rows of bytes.
#include <ppengine/ops/cpu/linear_step.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/cpu/step_chain.hpp>
#include <ppengine/ops/detail/implementations.hpp>

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

class FewRowsByLoops final : public WeightLinear {
 public:
  explicit FewRowsByLoops(const WeightLinearSpec& spec) : spec_(spec) {}
  std::size_t workspace_bytes() const override { return 0; }
  void forward(Stream& stream, const Operands& at) override {
    cpu::StepChain::of(stream).add(stream, cpu::step_of(spec_, at), spec_.weight.storage.format, spec_.rows);
  }

 private:
  WeightLinearSpec spec_;
};

// Any number of rows: each has the same bits in whatever company.
class ByBytes final : public WeightLinear {
 public:
  explicit ByBytes(const WeightLinearSpec& spec) : spec_(spec) {}
  std::size_t workspace_bytes() const override { return 0; }
  void forward(Stream& stream, const Operands& at) override {
    cpu::StepChain::of(stream).add_by_bytes(stream, cpu::step_of(spec_, at), spec_.rows);
  }

 private:
  WeightLinearSpec spec_;
};

bool is_int4(const WeightLinearSpec& spec) { return spec.weight.storage.format == WeightFormat::int4; }

Refusal refuse_bytes(const Device& device, const WeightLinearSpec& spec) {
  if (!is_int4(spec)) return "it is for int4";
  if (!spec.byte_inputs) return "inputs are not to be rounded to bytes";
  return cpu::refusal(device, Type::f32);
}

Refusal refuse_loops(const Device& device, const WeightLinearSpec& spec) {
  if (spec.rows > WeightLinear::few_rows) return "it is for up to 8 rows";
  if (is_int4(spec)) return "nothing is faster than panels for int4 in f32 arithmetic";
  return cpu::refusal(device, Type::f32);
}

}  // namespace

cpu::LinearStep cpu::step_of(const WeightLinearSpec& spec, const WeightLinear::Operands& at) {
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

constexpr Implementation<WeightLinear, WeightLinearSpec> bytes_weight_linear{"cpu bytes", refuse_bytes, construct<ByBytes>};
constexpr Implementation<WeightLinear, WeightLinearSpec> cpu_weight_linear{"cpu", refuse_loops, construct<FewRowsByLoops>};

}  // namespace ppengine::ops
