// Rotary embedding: checks and the list of implementations.
#include <ppengine/ops/rotary.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {

std::unique_ptr<Rotary> Rotary::make(Device& device, const RotarySpec& spec) {
  RotarySpec whole = spec;
  if (spec.half < 0 && spec.head_dim % 2 != 0)
    throw ConfigError(fmt::format("rotary embedding pairs elements: a head of {} has an odd one; use an even head_dim", spec.head_dim));
  if (spec.half < 0) whole.half = spec.head_dim / 2;
  if (spec.turned < 0) whole.turned = spec.heads;
  if (2 * whole.half > spec.head_dim || whole.turned > spec.heads || spec.parts < 1 || spec.heads % spec.parts != 0)
    throw ConfigError(fmt::format("rotary embedding: {} pairs of heads of {}, {} of {} heads turned, {} parts are not possible", whole.half,
                                  spec.head_dim, whole.turned, spec.heads, spec.parts));
  if (spec.type == Type::i32) throw ConfigError("rotary embedding is not for integers");
  static const std::array list{cpu_rotary, sycl_rotary};
  return make_first<Rotary, RotarySpec>("rotary embedding", list, device, whole);
}

}  // namespace ppengine::ops
