// Attention with grouped key/value heads, causal or not: forward and backward for training, and, causal, incremental with a KV cache.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include <ppengine/ops/device/stream.hpp>
#include <ppengine/ops/device/type.hpp>
#include <ppengine/ops/implementation.hpp>

namespace ppengine::ops {

// Element (b,t,h,d) of q lies at q[(b*length + t)*q_stride + h*head_dim + d]; k and v alike, with kv_heads heads. So q, k, v may be
// slices of one packed projection (stride 3*width) or tensors of their own. Query head h reads key/value head h / (heads/kv_heads).
struct AttentionSpec {
  std::int64_t batch = 0, length = 0;
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0;  // between tokens, in elements; gradients have the same strides
  float scale = 1.0f;                                     // softmax(scale · q·kᵀ)
  Type type = Type::f32;
  std::int64_t window = 0;  // a query sees the last so many keys, its own included; 0: all before it
  float cap = 0.0f;         // scores are cap · tanh(score / cap), before the mask; 0: as they are
  bool causal = true;       // a query sees no key behind itself; without it every query sees all keys
};

class Attention {
 public:
  static std::unique_ptr<Attention> make(Device& device, const AttentionSpec& spec);
  static std::vector<Considered> consider(const Device& device, const AttentionSpec& spec);
  static std::span<const Implementation<Attention, AttentionSpec>> implementations();  // all, in the order of trying
  virtual ~Attention() = default;

  // Bytes that forward keeps for backward (probabilities, or sums of exponentials), and that each call needs while it runs.
  virtual std::size_t saved_bytes() const = 0;
  virtual std::size_t workspace_bytes() const = 0;
  // dst[batch*length, heads*head_dim] dense. saved may be null when no backward follows (then workspace serves).
  virtual void forward(Stream& stream, const void* q, const void* k, const void* v, void* dst, void* saved, void* workspace) = 0;
  // dst is forward's result. The gradients are overwritten.
  virtual void backward(Stream& stream, const void* q, const void* k, const void* v, const void* dst, const void* diff_dst,
                        const void* saved, void* diff_q, void* diff_k, void* diff_v, void* workspace) = 0;
};

// A cache in pages that all sequences share: caches [kv_heads, count * size, head_dim]. Key t of sequence b lies in page
// filled[table_at + b * table_stride + t / size].
struct CachePages {
  std::int64_t size = 0, count = 0;  // size: of a page in tokens, a multiple of 64; 0: there are none
  std::int64_t table_at = 0, table_stride = 0;
};

// Attention over a cache: appends the new keys and values, then attends to everything before.
struct CachedAttentionSpec {
  std::int64_t batch = 0, length = 0;  // sequences, new tokens of each
  std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
  std::int64_t q_stride = 0, k_stride = 0, v_stride = 0;
  std::int64_t capacity = 0;  // tokens that the cache holds per sequence
  float scale = 1.0f;
  Type type = Type::f32;    // of activations and cache
  std::int64_t window = 0;  // the cache is a ring then: token t lies at t % capacity
  float cap = 0.0f;
  CachePages pages = {};  // not with a window
  bool bytes = false;     // keys and values in bytes, with a scale per head and token
  std::int64_t slots() const { return pages.size > 0 ? pages.size * pages.count : capacity; }  // for tokens: of a sequence, or of all
  std::size_t cache_bytes() const;                                                             // of the keys, or the values, in these
};

// Tokens that the cache of attention with a window keeps of sequences up to `capacity`, where up to `chunk` are appended at once.
std::int64_t window_capacity(std::int64_t window, std::int64_t chunk, std::int64_t capacity);

class CachedAttention {
 public:
  static std::unique_ptr<CachedAttention> make(Device& device, const CachedAttentionSpec& spec);
  virtual ~CachedAttention() = default;
  virtual std::size_t workspace_bytes() const = 0;
  // caches: [batch, kv_heads, capacity, head_dim], or pages; of bytes as the implementation has them, zero at first. filled[batch] (device
  // memory): tokens already in each sequence's cache.
  virtual void forward(Stream& stream, const void* q, const void* k, const void* v, const std::int32_t* filled, void* k_cache,
                       void* v_cache, void* dst, void* workspace) = 0;
};

}  // namespace ppengine::ops
