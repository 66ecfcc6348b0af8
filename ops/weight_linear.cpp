// A linear layer of inference: checks and the list of implementations.
#include <ppengine/ops/weight_linear.hpp>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/step_chain.hpp>

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

}  // namespace

LinearStep step_of(const WeightLinearSpec& spec, const WeightLinear::Operands& at, int64_t chunk) {
  LinearStep step{};
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
  step.chunk = chunk;
  step.epsilon = spec.norm ? spec.norm->epsilon : 0.0f;
  step.centered = spec.norm && spec.norm->kind == NormKind::layer ? 1 : 0;
  step.activation = activation_code(spec);
  return step;
}

std::unique_ptr<WeightLinear> WeightLinear::make(Device& device, const WeightLinearSpec& spec) {
  PPENGINE_ASSERT(spec.rows > 0 && spec.weight.in > 0 && spec.weight.out > 0);
  PPENGINE_ASSERT(!(spec.residual && (spec.activation || spec.gated)) && !(spec.activation && spec.gated));
  static const std::array list{bytes_weight_linear, step_weight_linear, sycl_weight_linear, products_weight_linear};
  return make_first<WeightLinear, WeightLinearSpec>("linear of inference", list, device, spec);
}

}  // namespace ppengine::ops
