// Attention in f32 on CPUs with vectors, in the calling thread.
#include <ppengine/ops/cpu/attention_heads.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/attention_parts.hpp>

namespace ppengine::ops {
namespace {

using cpu::floats;

class CpuAttention : public Attention {
 public:
  explicit CpuAttention(const AttentionSpec& spec) : spec_(spec) {}

  std::size_t saved_bytes() const override {
    return static_cast<std::size_t>(spec_.batch * spec_.heads * spec_.length * cpu::attention_saved) * sizeof(float);
  }
  std::size_t workspace_bytes() const override { return 0; }

  void forward(Stream& stream, const void* q, const void* k, const void* v, void* dst, void* saved, void*) override {
    stream.wait();
    cpu::attention_forward(spec_, {floats(q), floats(k), floats(v)}, floats(dst), floats(saved));
  }
  void backward(Stream& stream, const void* q, const void* k, const void* v, const void* dst, const void* diff_dst, const void* saved,
                void* diff_q, void* diff_k, void* diff_v, void*) override {
    stream.wait();
    cpu::attention_backward(spec_, {floats(q), floats(k), floats(v)}, floats(dst), floats(diff_dst), floats(saved),
                            {floats(diff_q), floats(diff_k), floats(diff_v)});
  }

 private:
  AttentionSpec spec_;
};

Refusal refuse(const Device& device, const AttentionSpec& spec) {
  return spec.window > 0 || spec.cap > 0 ? Refusal("windows and caps are not made here") : cpu::refusal(device, spec.type);
}

}  // namespace

constexpr Implementation<Attention, AttentionSpec> cpu_attention{"cpu", refuse, construct<CpuAttention>};

}  // namespace ppengine::ops
