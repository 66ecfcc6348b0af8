// The implementations of convolution.
#pragma once

#include <ppengine/ops/convolution.hpp>

namespace ppengine::ops {

Refusal cpu_convolution_refusal(const Device& device, const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_cpu_convolution(Device& device, const ConvolutionSpec& spec);
Refusal onednn_convolution_refusal(const Device& device, const ConvolutionSpec& spec);
std::unique_ptr<Convolution> make_onednn_convolution(Device& device, const ConvolutionSpec& spec);

}  // namespace ppengine::ops
