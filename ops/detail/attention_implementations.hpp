// The implementations of attention: what the lists in ops/attention.cpp order.
#pragma once

#include <ppengine/ops/attention.hpp>

struct AttentionShape;  // kernels/attention_shape.hpp

namespace ppengine::ops {

AttentionShape training_shape(const AttentionSpec& spec);
AttentionShape cache_shape(const CachedAttentionSpec& spec);

Refusal cpu_attention_refusal(const Device& device, const AttentionSpec& spec);
std::unique_ptr<Attention> make_cpu_attention(Device& device, const AttentionSpec& spec);
Refusal onednn_attention_refusal(const Device& device, const AttentionSpec& spec);
std::unique_ptr<Attention> make_onednn_attention(Device& device, const AttentionSpec& spec);
// Of the kernels with a query per lane, for training as over a cache.
Refusal lanes_refusal(const Device& device, Type type, int64_t head_dim);
Refusal lanes_attention_refusal(const Device& device, const AttentionSpec& spec);
std::unique_ptr<Attention> make_lanes_attention(Device& device, const AttentionSpec& spec);
Refusal products_attention_refusal(const Device& device, const AttentionSpec& spec);
std::unique_ptr<Attention> make_products_attention(Device& device, const AttentionSpec& spec);
Refusal sycl_attention_refusal(const Device& device, const AttentionSpec& spec);
std::unique_ptr<Attention> make_sycl_attention(Device& device, const AttentionSpec& spec);

// Over a cache of bytes, on CPUs.
Refusal byte_cache_attention_refusal(const Device& device, const CachedAttentionSpec& spec);
std::unique_ptr<CachedAttention> make_byte_cache_attention(Device& device, const CachedAttentionSpec& spec);
// Of few tokens on CPUs: a step among those of decoding.
Refusal decode_attention_refusal(const Device& device, const CachedAttentionSpec& spec);
std::unique_ptr<CachedAttention> make_decode_attention(Device& device, const CachedAttentionSpec& spec);
Refusal sycl_cached_attention_refusal(const Device& device, const CachedAttentionSpec& spec);
std::unique_ptr<CachedAttention> make_sycl_cached_attention(Device& device, const CachedAttentionSpec& spec);

}  // namespace ppengine::ops
