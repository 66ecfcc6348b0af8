// A linear layer of inference: checks and the list of implementations.
#include <ppengine/ops/weight_linear.hpp>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::unique_ptr<WeightLinear> WeightLinear::make(Device& device, const WeightLinearSpec& spec) {
  PPENGINE_ASSERT(spec.rows > 0 && spec.weight.in > 0 && spec.weight.out > 0);
  PPENGINE_ASSERT(!(spec.residual && (spec.activation || spec.gated)) && !(spec.activation && spec.gated));
  static const std::array list{bytes_weight_linear, cpu_weight_linear, sycl_weight_linear, products_weight_linear};
  return make_first<WeightLinear, WeightLinearSpec>("linear of inference", list, device, spec);
}

}  // namespace ppengine::ops
