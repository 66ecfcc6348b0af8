// Attention of few tokens over a cache on CPUs: a step among those of decoding.
#include <fmt/core.h>

#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/cpu/step_chain.hpp>
#include <ppengine/ops/detail/attention_parts.hpp>

namespace ppengine::ops {
namespace {

constexpr std::int64_t most_tokens = 8;  // what is more is no decoding

class DecodeAttention : public CachedAttention {
 public:
  explicit DecodeAttention(const CachedAttentionSpec& spec) : spec_(spec) {}
  std::size_t workspace_bytes() const override { return 0; }

  void forward(Stream& stream, const void* q, const void* k, const void* v, const std::int32_t* filled, void* k_cache, void* v_cache,
               void* dst, void*) override {
    const auto in = [](const void* from) { return static_cast<const float*>(from); };
    const auto out = [](void* to) { return static_cast<float*>(to); };
    const cpu::AttentionStep step{in(q),    in(k),          in(v),          filled,        out(k_cache),      out(v_cache),
                                  out(dst), spec_.k_stride, spec_.v_stride, spec_.slots(), cache_shape(spec_)};
    cpu::StepChain::of(stream).add(stream, step, spec_.batch * spec_.length);
  }

 private:
  CachedAttentionSpec spec_;
};

Refusal refuse(const Device& device, const CachedAttentionSpec& spec) {
  if (auto reason = cpu::refusal(device, spec.type)) return reason;
  if (spec.bytes) return "it reads f32 only";
  if (spec.batch * spec.length > most_tokens) return fmt::format("{} tokens, a step has at most {}", spec.batch * spec.length, most_tokens);
  if (spec.head_dim > cpu::widest_head) return fmt::format("heads are {} wide, a step takes at most {}", spec.head_dim, cpu::widest_head);
  return {};
}

}  // namespace

constexpr Implementation<CachedAttention, CachedAttentionSpec> decode_attention{"cpu step", refuse, construct<DecodeAttention>};

}  // namespace ppengine::ops
