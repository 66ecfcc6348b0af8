// Attention in f32 on CPUs with AVX-512, in the calling thread.
#include <ppengine/ops/attention_implementations.hpp>
#include <ppengine/ops/cpu/attention_heads.hpp>
#include <ppengine/ops/cpu/gemm.hpp>
#include <ppengine/ops/onednn/primitive.hpp>

namespace ppengine::ops {
namespace {

const float* floats(const void* values) { return static_cast<const float*>(values); }
float* floats(void* values) { return static_cast<float*>(values); }

class CpuAttention : public Attention {
 public:
  explicit CpuAttention(const AttentionSpec& spec) : spec_(spec) {}

  size_t saved_bytes() const override {
    return static_cast<size_t>(spec_.batch * spec_.heads * spec_.length * cpu::attention_saved) * sizeof(float);
  }
  size_t workspace_bytes() const override { return 0; }

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

}  // namespace

// It needs nothing of oneDNN, but without that the SYCL kernels are what is asked for (and tested).
Refusal cpu_attention_refusal(const Device& device, const AttentionSpec& spec) {
  if (auto refusal = onednn::device_refusal(device)) return refusal;
  if (!device.info().is_cpu) return "it is for CPUs";
  if (!cpu::has_gemm()) return "this CPU has no AVX-512";
  if (spec.type != Type::f32) return "it is for f32";
  return {};
}

std::unique_ptr<Attention> make_cpu_attention(Device&, const AttentionSpec& spec) { return std::make_unique<CpuAttention>(spec); }

}  // namespace ppengine::ops
