// Rotary position embedding as a step of decoding; back it goes by the kernel.
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/cpu/step_chain.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

class CpuRotary final : public Rotary {
 public:
  CpuRotary(Device& device, const RotarySpec& spec)
      : spec_(spec),
        shape_{spec.length, spec.heads, spec.turned, spec.head_dim, spec.half, spec.parts},
        kernel_(sycl_rotary.make(device, spec)) {}

  void forward(Stream& stream, const void* src, const float* cosines, const float* sines, const std::int32_t* first, void* dst) override {
    cpu::StepChain::of(stream).add(stream,
                                   cpu::RotaryStep{static_cast<const float*>(src), cosines, sines, first, static_cast<float*>(dst),
                                                   spec_.src_stride, spec_.dst_stride, shape_},
                                   spec_.batch * spec_.length);
  }
  void backward_input(Stream& stream, const void* diff_dst, const float* cosines, const float* sines, const std::int32_t* first,
                      void* diff_src) override {
    kernel_->backward_input(stream, diff_dst, cosines, sines, first, diff_src);
  }

 private:
  RotarySpec spec_;
  RotaryShape shape_;
  std::unique_ptr<Rotary> kernel_;
};

}  // namespace

constexpr Implementation<Rotary, RotarySpec> cpu_rotary{
    "cpu", [](const Device& device, const RotarySpec& spec) { return cpu::refusal(device, spec.type); }, construct<CpuRotary>};

}  // namespace ppengine::ops
