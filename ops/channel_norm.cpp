// Channel norm: the list of implementations.
#include <ppengine/ops/channel_norm.hpp>

#include <array>

#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::unique_ptr<ChannelNorm> ChannelNorm::make(Device& device, const ChannelNormSpec& spec) {
  static const std::array list{cpu_channel_norm};
  return make_first_or_none<ChannelNorm, ChannelNormSpec>(list, device, spec);
}

}  // namespace ppengine::ops
