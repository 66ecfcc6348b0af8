// Rotary position embedding on our own kernel; oneDNN has none.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/kernels/attention_shape.hpp>
#include <ppengine/ops/sycl/constant.hpp>

namespace ppengine::ops {
namespace {

class SyclRotary : public Rotary {
 public:
  SyclRotary(Device& device, const RotarySpec& spec)
      : spec_(spec),
        shape_(device, RotaryShape{spec.length, spec.heads, spec.turned, spec.head_dim, spec.half, spec.parts}),
        kernel_(device.kernels().get("attention", spec.type == Type::bf16 ? "rotary_bf16" : "rotary_f32")) {}

  void forward(Stream& stream, const void* src, const float* cosines, const float* sines, const std::int32_t* first, void* dst) override {
    run(stream, src, dst, cosines, sines, first, spec_.src_stride, spec_.dst_stride, 1.0f);
  }
  void backward_input(Stream& stream, const void* diff_dst, const float* cosines, const float* sines, const std::int32_t* first,
                      void* diff_src) override {
    run(stream, diff_dst, diff_src, cosines, sines, first, spec_.dst_stride, spec_.src_stride, -1.0f);
  }

 private:
  void run(Stream& stream, const void* src, void* dst, const float* cosines, const float* sines, const std::int32_t* first,
           std::int64_t src_stride, std::int64_t dst_stride, float back) const {
    const bool whole = spec_.turned == spec_.heads && 2 * spec_.half == spec_.head_dim;  // nothing is copied: a work-item per pair
    const std::int64_t per = whole ? spec_.half : spec_.head_dim, count = spec_.batch * spec_.length * spec_.heads * per;
    constexpr std::int64_t size = 64;  // as in kernels/attention.cpp
    kernel_.launch(stream, static_cast<std::size_t>((count + size - 1) / size), size, src, dst, cosines, sines, first, count, shape_.data(),
                   src_stride, dst_stride, per, back);
  }

  RotarySpec spec_;
  own::Constant<RotaryShape> shape_;
  const Kernel& kernel_;
};

}  // namespace

constexpr Implementation<Rotary, RotarySpec> sycl_rotary{"sycl", takes_all, construct<SyclRotary>};

}  // namespace ppengine::ops
