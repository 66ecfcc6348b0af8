// Attention: checks and the lists of implementations.
#include <ppengine/ops/attention.hpp>

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/kernels/attention_shape.hpp>

namespace ppengine::ops {
namespace {

template <class Spec>
void check(const Spec& spec) {
  if (spec.heads <= 0 || spec.kv_heads <= 0 || spec.head_dim <= 0 || spec.heads % spec.kv_heads != 0)
    throw ConfigError(fmt::format("attention: {} heads of width {} cannot share {} key/value heads; heads must be a multiple of them",
                                  spec.heads, spec.head_dim, spec.kv_heads));
  if (spec.q_stride < spec.heads * spec.head_dim || spec.k_stride < spec.kv_heads * spec.head_dim ||
      spec.v_stride < spec.kv_heads * spec.head_dim)
    throw ConfigError(fmt::format("attention: strides {}, {}, {} are shorter than a token's heads ({} and {} of width {})", spec.q_stride,
                                  spec.k_stride, spec.v_stride, spec.heads, spec.kv_heads, spec.head_dim));
  if constexpr (requires { spec.causal; }) {
    if (!spec.causal && spec.window > 0) throw ConfigError("attention: a window is for causal attention");
  }
  if (spec.window < 0 || !(spec.cap >= 0))
    throw ConfigError(fmt::format("attention: a window of {} and a cap of {} are not possible", spec.window, spec.cap));
}

}  // namespace

std::span<const Implementation<Attention, AttentionSpec>> Attention::implementations() {
  static const std::array list{cpu_attention, lanes_attention, onednn_attention, sycl_attention, products_attention};
  return list;
}

std::unique_ptr<Attention> Attention::make(Device& device, const AttentionSpec& spec) {
  check(spec);
  return make_first<Attention, AttentionSpec>("attention", implementations(), device, spec);
}

std::vector<Considered> Attention::consider(const Device& device, const AttentionSpec& spec) {
  check(spec);
  return ops::consider<Attention, AttentionSpec>(implementations(), device, spec);
}

// What a run overwrites must be seen by none of its tokens: a window and the tokens that are appended at once.
std::int64_t window_capacity(std::int64_t window, std::int64_t chunk, std::int64_t capacity) {
  if (window <= 0 || window >= capacity) return capacity;
  return std::min(capacity, (window + chunk + ring_step - 1) / ring_step * ring_step);
}

std::unique_ptr<CachedAttention> CachedAttention::make(Device& device, const CachedAttentionSpec& spec) {
  check(spec);
  PPENGINE_ASSERT(spec.pages.size % page_step == 0 && (spec.pages.size == 0 || spec.window == 0));
  static const std::array list{byte_cache_attention, decode_attention, sycl_cached_attention};
  return make_first<CachedAttention, CachedAttentionSpec>("attention over a cache", list, device, spec);
}

}  // namespace ppengine::ops
