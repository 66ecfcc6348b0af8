// A linear layer of inference as a step of decoding.
#pragma once

#include <ppengine/ops/cpu/loops_steps.hpp>
#include <ppengine/ops/weight_linear.hpp>

namespace ppengine::ops::cpu {

LinearStep step_of(const WeightLinearSpec& spec, const WeightLinear::Operands& at);

}  // namespace ppengine::ops::cpu
