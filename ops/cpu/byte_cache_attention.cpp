// Attention over a cache of bytes on CPUs: a step among those of decoding, for prompts as for single tokens.
#include <fmt/core.h>

#include <ppengine/ops/cpu/loops_byte_cache.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/cpu/step_chain.hpp>
#include <ppengine/ops/detail/attention_parts.hpp>

namespace ppengine::ops {
namespace {

using cpu::floats;

class ByteCacheAttention : public CachedAttention {
 public:
  explicit ByteCacheAttention(const CachedAttentionSpec& spec) : spec_(spec) {}
  std::size_t workspace_bytes() const override { return 0; }

  void forward(Stream& stream, const void* q, const void* k, const void* v, const std::int32_t* filled, void* k_cache, void* v_cache,
               void* dst, void*) override {
    const auto head = static_cast<std::int64_t>(spec_.cache_bytes()) / spec_.kv_heads;
    const cpu::ByteCacheStep step{{floats(q), floats(k), floats(v), filled, nullptr, nullptr, floats(dst), spec_.k_stride, spec_.v_stride,
                                   spec_.slots(), cache_shape(spec_)},
                                  static_cast<std::byte*>(k_cache),
                                  static_cast<std::byte*>(v_cache),
                                  head,
                                  spec_.pages.size > 0 ? 0 : head * spec_.kv_heads};
    cpu::StepChain::of(stream).add_over_bytes(step, spec_.batch);
  }

 private:
  CachedAttentionSpec spec_;
};

Refusal refuse(const Device& device, const CachedAttentionSpec& spec) {
  if (!spec.bytes) return "the cache is not of bytes";
  return cpu::refusal(device, spec.type);
}

}  // namespace

std::size_t CachedAttentionSpec::cache_bytes() const {
  if (!bytes) return static_cast<std::size_t>(kv_heads * slots() * head_dim) * size_of(type);
  const std::int64_t blocks = (slots() + cpu::byte_block - 1) / cpu::byte_block;
  return static_cast<std::size_t>(kv_heads * blocks * cpu::byte_block_bytes(head_dim));
}

constexpr Implementation<CachedAttention, CachedAttentionSpec> byte_cache_attention{"cpu bytes", refuse, construct<ByteCacheAttention>};

}  // namespace ppengine::ops
