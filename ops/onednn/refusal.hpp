// Why oneDNN would not serve a norm, an activation or a softmax.
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

}  // namespace ppengine::ops::onednn
