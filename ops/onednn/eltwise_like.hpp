// What oneDNN's norm, activation and softmax share: reasons to refuse.
#pragma once

#include <string_view>

#include <ppengine/ops/onednn/primitive.hpp>

namespace ppengine::ops::onednn {

// desc: made with allow_empty.
template <class PrimitiveDesc>
Refusal primitive_refusal(const PrimitiveDesc& desc) {
  if (!desc) return "oneDNN has no such primitive for this device and type";
  if (std::string_view(desc.impl_info_str()).starts_with("ref")) return "oneDNN has only its reference code for this device and type";
  return {};
}

// Measured by `ppengine bench ops`, which runs both: see docs/ops.md.
inline Refusal slower_on_cpu(const Device& device) {
  if (device.info().is_cpu) return "it can, but our kernel is as fast or faster on CPUs ('ppengine bench ops' shows both)";
  return {};
}

}  // namespace ppengine::ops::onednn
