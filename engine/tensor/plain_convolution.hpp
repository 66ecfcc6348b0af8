// Convolution by generated kernels: for devices and sizes that oneDNN does not serve.
#pragma once

#include <memory>

#include <ppengine/engine/tensor/kernels.hpp>
#include <ppengine/ops/convolution.hpp>

namespace ppengine::engine {

// To be made while a stage is compiled: its kernels belong to that stage.
std::shared_ptr<ops::Convolution> make_plain_convolution(const Kernels& kernels, const ops::ConvolutionSpec& spec);

}  // namespace ppengine::engine
