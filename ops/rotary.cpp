// Rotary position embedding on our own kernel; oneDNN has none.
#include <ppengine/ops/rotary.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/cpu/step_chain.hpp>
#include <ppengine/ops/sycl/constant.hpp>

namespace ppengine::ops {
namespace {

class SyclRotary : public Rotary {
 public:
  SyclRotary(Device& device, const RotarySpec& spec)
      : spec_(spec),
        host_shape_{spec.length, spec.heads, spec.turned, spec.head_dim, spec.half, spec.parts},
        shape_(device, host_shape_),
        kernel_(device.kernels().get("attention", spec.type == Type::bf16 ? "rotary_bf16" : "rotary_f32")),
        by_steps_(!cpu::refusal(device, spec.type)) {}

  void forward(Stream& stream, const void* src, const float* cosines, const float* sines, const int32_t* first, void* dst) override {
    if (by_steps_)
      return cpu::StepChain::of(stream).add(stream,
                                            cpu::RotaryStep{static_cast<const float*>(src), cosines, sines, first, static_cast<float*>(dst),
                                                            spec_.src_stride, spec_.dst_stride, host_shape_},
                                            spec_.batch * spec_.length);
    run(stream, src, dst, cosines, sines, first, spec_.src_stride, spec_.dst_stride, 1.0f);
  }
  void backward_input(Stream& stream, const void* diff_dst, const float* cosines, const float* sines, const int32_t* first,
                      void* diff_src) override {
    run(stream, diff_dst, diff_src, cosines, sines, first, spec_.dst_stride, spec_.src_stride, -1.0f);
  }

 private:
  void run(Stream& stream, const void* src, void* dst, const float* cosines, const float* sines, const int32_t* first, int64_t src_stride,
           int64_t dst_stride, float back) const {
    const bool whole = spec_.turned == spec_.heads && 2 * spec_.half == spec_.head_dim;  // nothing is copied: a work-item per pair
    const int64_t per = whole ? spec_.half : spec_.head_dim, count = spec_.batch * spec_.length * spec_.heads * per;
    constexpr int64_t size = 64;  // as in kernels/attention.cpp
    kernel_.launch(stream, static_cast<size_t>((count + size - 1) / size), size, src, dst, cosines, sines, first, count, shape_.data(),
                   src_stride, dst_stride, per, back);
  }

  RotarySpec spec_;
  RotaryShape host_shape_;
  own::Constant<RotaryShape> shape_;
  const Kernel& kernel_;
  bool by_steps_;  // forward is one of the steps of decoding
};

}  // namespace

std::unique_ptr<Rotary> Rotary::make(Device& device, const RotarySpec& spec) {
  RotarySpec whole = spec;
  if (spec.half < 0 && spec.head_dim % 2 != 0)
    throw ConfigError(fmt::format("rotary embedding pairs elements: a head of {} has an odd one; use an even head_dim", spec.head_dim));
  if (spec.half < 0) whole.half = spec.head_dim / 2;
  if (spec.turned < 0) whole.turned = spec.heads;
  if (2 * whole.half > spec.head_dim || whole.turned > spec.heads || spec.parts < 1 || spec.heads % spec.parts != 0)
    throw ConfigError(fmt::format("rotary embedding: {} pairs of heads of {}, {} of {} heads turned, {} parts are not possible", whole.half,
                                  spec.head_dim, whole.turned, spec.heads, spec.parts));
  if (spec.type == Type::i32) throw ConfigError("rotary embedding is not for integers");
  return std::make_unique<SyclRotary>(device, whole);
}

}  // namespace ppengine::ops
