// Layer norm and RMS norm by oneDNN. It keeps the variance where ours keeps 1/sqrt(variance + epsilon): the statistics belong to the op
// that made them. With a scale it has only the whole backward (3.13 refuses backward_data): its weight gradients go to memory that nobody
// reads, and the weight gradient alone is ours.
#include <fmt/core.h>

#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/elementwise.hpp>
#include <ppengine/ops/onednn/refusal.hpp>

namespace ppengine::ops {
namespace {

using dnnl::layer_normalization_backward;
using dnnl::layer_normalization_forward;
using dnnl::normalization_flags;

struct Descs {
  onednn::Desc data, weight, diff_weight, statistics;
  normalization_flags flags;

  explicit Descs(const NormSpec& spec)
      : data({spec.rows, spec.width}, onednn::data_type(spec.type), dnnl::memory::format_tag::ab),
        weight({spec.width}, onednn::data_type(spec.type), dnnl::memory::format_tag::a),
        diff_weight({spec.width}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a),
        statistics({spec.rows}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::a),
        flags(normalization_flags::use_scale) {
    if (spec.bias) flags |= normalization_flags::use_shift;
    if (spec.kind == NormKind::rms) flags |= normalization_flags::rms_norm;
  }
};

layer_normalization_forward::primitive_desc describe_forward(const Device& device, const NormSpec& spec, bool allow_empty = false) {
  const Descs d(spec);
  return {device.impl().engine.value(),
          dnnl::prop_kind::forward_training,
          d.data,
          d.data,
          d.statistics,
          onednn::data_type(spec.type),
          spec.epsilon,
          d.flags,
          onednn::Primitive::attributes(),
          allow_empty};
}

layer_normalization_backward::primitive_desc describe_backward(const Device& device, const NormSpec& spec, bool allow_empty = false) {
  const Descs d(spec);
  return {device.impl().engine.value(),
          dnnl::prop_kind::backward,
          d.data,
          d.data,
          d.data,
          d.statistics,
          dnnl::memory::data_type::f32,
          onednn::data_type(spec.type),
          spec.epsilon,
          d.flags,
          describe_forward(device, spec),
          onednn::Primitive::attributes(),
          allow_empty};
}

class OnednnNorm final : public Norm {
 public:
  OnednnNorm(Device& device, const NormSpec& spec)
      : spec_(spec),
        layer_(spec.kind == NormKind::layer),
        ours_(sycl_norm.make(device, spec)),
        to_rstd_(device.kernels().get("norm", "variance_to_rstd")),
        rstd_(device.shared_from_this(), static_cast<std::size_t>(spec.rows) * sizeof(float)),
        unread_(device.shared_from_this(), static_cast<std::size_t>(spec.width) * 2 * sizeof(float)),
        split_(split_elements(device, spec.rows)) {
    const Descs d(spec);
    const auto argument = [](int index, const onednn::Desc& desc) { return onednn::Primitive::Argument{index, desc}; };
    const auto src = argument(DNNL_ARG_SRC, d.data), scale = argument(DNNL_ARG_SCALE, d.weight), shift = argument(DNNL_ARG_SHIFT, d.weight),
               dst = argument(DNNL_ARG_DST, d.data), mean = argument(DNNL_ARG_MEAN, d.statistics),
               variance = argument(DNNL_ARG_VARIANCE, d.statistics), diff_dst = argument(DNNL_ARG_DIFF_DST, d.data),
               diff_src = argument(DNNL_ARG_DIFF_SRC, d.data), diff_scale = argument(DNNL_ARG_DIFF_SCALE, d.diff_weight),
               diff_shift = argument(DNNL_ARG_DIFF_SHIFT, d.diff_weight);
    const auto forward = describe_forward(device, spec);
    const auto backward = describe_backward(device, spec);
    forward_ = !layer_     ? onednn::Primitive(device, forward, {src, scale, dst, variance})
               : spec.bias ? onednn::Primitive(device, forward, {src, scale, dst, mean, variance, shift})
                           : onednn::Primitive(device, forward, {src, scale, dst, mean, variance});
    backward_ = !layer_     ? onednn::Primitive(device, backward, {src, diff_dst, scale, variance, diff_src, diff_scale})
                : spec.bias ? onednn::Primitive(device, backward, {src, diff_dst, scale, variance, diff_src, diff_scale, mean, diff_shift})
                            : onednn::Primitive(device, backward, {src, diff_dst, scale, variance, diff_src, diff_scale, mean});
  }

  void forward(Stream& stream, const void* src, const void* gamma, const void* beta, void* dst, float* mean, float* variance) override {
    if (!layer_)
      forward_.run(stream, {src, gamma, dst, variance});
    else if (spec_.bias)
      forward_.run(stream, {src, gamma, dst, mean, variance, beta});
    else
      forward_.run(stream, {src, gamma, dst, mean, variance});
  }

  void backward_input(Stream& stream, const void* src, const void* diff_dst, const void* gamma, const float* mean, const float* variance,
                      const void* added, void* diff_src) override {
    // The sum is an extra pass, through memory of the stream when the addend is where the result goes.
    const bool in_place = spec_.add_diff_src && added == diff_src;
    void* const result = in_place ? sum_memory(stream) : diff_src;
    float *const to_gamma = unread_.as<float>(), *const to_beta = to_gamma + spec_.width;
    if (!layer_)
      backward_.run(stream, {src, diff_dst, gamma, variance, result, to_gamma});
    else if (spec_.bias)
      backward_.run(stream, {src, diff_dst, gamma, variance, result, to_gamma, mean, to_beta});
    else
      backward_.run(stream, {src, diff_dst, gamma, variance, result, to_gamma, mean});
    if (spec_.add_diff_src) add(stream, spec_.type, result, added, diff_src, spec_.rows * spec_.width);
  }

  void backward_weight(Stream& stream, const void* src, const void* diff_dst, const float* mean, const float* variance, float* diff_gamma,
                       float* diff_beta, bool accumulate) override {
    to_rstd_.launch(stream, split_.groups, split_.size, variance, rstd_.as<float>(), spec_.epsilon, spec_.rows, split_.chunk);
    ours_->backward_weight(stream, src, diff_dst, mean, rstd_.as<float>(), diff_gamma, diff_beta, accumulate);
  }

 private:
  void* sum_memory(Stream& stream) {
    const std::size_t bytes = static_cast<std::size_t>(spec_.rows * spec_.width) * size_of(spec_.type);
    if (sum_.bytes() < bytes) sum_ = Buffer(stream.device_ptr(), bytes);
    return sum_.data();
  }

  NormSpec spec_;
  bool layer_;
  std::unique_ptr<Norm> ours_;
  const Kernel& to_rstd_;
  Buffer rstd_, unread_, sum_;
  Split split_;
  onednn::Primitive forward_, backward_;
};

Refusal refusal(const Device& device, const NormSpec& spec) {
  if (spec.gamma_shift != 0) return "oneDNN does not shift gamma";
  if (auto reason = onednn::device_refusal(device)) return reason;
  if (spec.rows == 0) return "oneDNN takes no empty tensors";
  if (device.info().is_cpu) return "our kernels are faster on CPUs: its forward is level, its backward takes twice as long";
  if (spec.kind == NormKind::rms) return "its backward of RMS norm (3.13) is not the gradient (norm/equals_pytorch fails with it)";
  if (auto reason = onednn::primitive_refusal(describe_forward(device, spec, true))) return reason;
  if (auto reason = onednn::primitive_refusal(describe_backward(device, spec, true))) return reason;
  return {};
}

}  // namespace

constexpr Implementation<Norm, NormSpec> onednn_norm{"onednn", refusal, [](Device& device, const NormSpec& spec) -> std::unique_ptr<Norm> {
                                                       return std::make_unique<OnednnNorm>(device, spec);
                                                     }};

}  // namespace ppengine::ops
