// Attention of few tokens over a cache on CPUs: a step among those of decoding (kernels/few_rows_attention.hpp).
#include <fmt/core.h>

#include <ppengine/ops/detail/attention_parts.hpp>
#include <ppengine/ops/detail/step_chain.hpp>

namespace ppengine::ops {
namespace {

constexpr int64_t widest_head = 256;  // as in kernels/few_rows_attention.hpp

class DecodeAttention : public CachedAttention {
 public:
  explicit DecodeAttention(const CachedAttentionSpec& spec) : spec_(spec) {}
  size_t workspace_bytes() const override { return 0; }

  void forward(Stream& stream, const void* q, const void* k, const void* v, const int32_t* filled, void* k_cache, void* v_cache, void* dst,
               void*) override {
    const auto in = [](const void* from) { return static_cast<const float*>(from); };
    const auto out = [](void* to) { return static_cast<float*>(to); };
    const AttentionStep step{in(q),    in(k),          in(v),          filled,        out(k_cache),      out(v_cache),
                             out(dst), spec_.k_stride, spec_.v_stride, spec_.slots(), cache_shape(spec_)};
    StepChain::of(stream).add(stream, step, spec_.batch * spec_.length);
  }

 private:
  CachedAttentionSpec spec_;
};

Refusal refuse(const Device& device, const CachedAttentionSpec& spec) {
  if (!device.info().is_cpu) return "steps of decoding are made for CPUs";
  if (spec.type != Type::f32) return "it reads f32 only";
  if (spec.batch * spec.length > StepChain::most_tokens)
    return fmt::format("{} tokens, a step has at most {}", spec.batch * spec.length, StepChain::most_tokens);
  if (spec.head_dim > widest_head) return fmt::format("heads are {} wide, this kernel holds at most {}", spec.head_dim, widest_head);
  return {};
}

}  // namespace

constexpr Implementation<CachedAttention, CachedAttentionSpec> decode_attention{"sycl step", refuse, construct<DecodeAttention>};

}  // namespace ppengine::ops
