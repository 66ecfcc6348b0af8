// The implementations of Linear, and what they share. Used by linear.cpp in ops, ops/cpu, ops/onednn and ops/sycl only.
#pragma once

#include <ppengine/ops/linear.hpp>

namespace ppengine::ops {

Refusal cpu_linear_refusal(const Device& device, const LinearSpec& spec);
std::unique_ptr<Linear> make_cpu_linear(Device& device, const LinearSpec& spec);
Refusal onednn_linear_refusal(const Device& device, const LinearSpec& spec);
std::unique_ptr<Linear> make_onednn_linear(Device& device, const LinearSpec& spec);
Refusal sycl_linear_refusal(const Device& device, const LinearSpec& spec);
std::unique_ptr<Linear> make_sycl_linear(Device& device, const LinearSpec& spec);

// backward_weight of no rows.
void clear_gradients(Stream& stream, const LinearSpec& spec, float* diff_weight, float* diff_bias, bool accumulate);

}  // namespace ppengine::ops
