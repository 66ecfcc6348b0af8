// What implementations of attention share.
#pragma once

#include <ppengine/ops/detail/implementations.hpp>

struct AttentionShape;  // kernels/attention_shape.hpp

namespace ppengine::ops {

AttentionShape training_shape(const AttentionSpec& spec);
AttentionShape cache_shape(const CachedAttentionSpec& spec);

// Of the kernels with a query per lane, for training as over a cache.
Refusal lanes_refusal(const Device& device, Type type, std::int64_t head_dim);

}  // namespace ppengine::ops
