// Convolution: the list of implementations.
#include <ppengine/ops/convolution.hpp>

#include <array>

#include <ppengine/ops/detail/convolution_implementations.hpp>

namespace ppengine::ops {

std::span<const Implementation<Convolution, ConvolutionSpec>> Convolution::implementations() {
  static constexpr std::array<Implementation<Convolution, ConvolutionSpec>, 2> list{{
      {"cpu", cpu_convolution_refusal, make_cpu_convolution},
      {"onednn", onednn_convolution_refusal, make_onednn_convolution},
  }};
  return list;
}

std::unique_ptr<Convolution> Convolution::make(Device& device, const ConvolutionSpec& spec) {
  for (const auto& one : implementations())
    if (!one.refusal(device, spec)) return one.make(device, spec);
  return nullptr;
}

std::vector<Considered> Convolution::consider(const Device& device, const ConvolutionSpec& spec) {
  return ops::consider<Convolution, ConvolutionSpec>(implementations(), device, spec);
}

}  // namespace ppengine::ops
