// Convolution: the list of implementations.
#include <ppengine/ops/convolution.hpp>

#include <array>

#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::span<const Implementation<Convolution, ConvolutionSpec>> Convolution::implementations() {
  static const std::array list{cpu_convolution, onednn_convolution};
  return list;
}

std::unique_ptr<Convolution> Convolution::make(Device& device, const ConvolutionSpec& spec) {
  return make_first_or_none<Convolution, ConvolutionSpec>(implementations(), device, spec);
}

std::vector<Considered> Convolution::consider(const Device& device, const ConvolutionSpec& spec) {
  return ops::consider<Convolution, ConvolutionSpec>(implementations(), device, spec);
}

}  // namespace ppengine::ops
