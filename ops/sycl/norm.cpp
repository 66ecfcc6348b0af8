// Layer norm and RMS norm by our own kernels.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

class SyclNorm final : public Norm {
 public:
  SyclNorm(Device& device, const NormSpec& spec)
      : spec_(spec),
        layer_(spec.kind == NormKind::layer),
        rows_(split_team_rows(device, spec.rows, spec.width)),
        columns_(split_columns(device, spec.rows, spec.width)),
        forward_(typed_kernel(device, "norm", "norm_forward", spec.type, rows_.wide)),
        backward_input_(typed_kernel(device, "norm", "norm_backward_input", spec.type, rows_.wide)),
        backward_weight_(typed_kernel(device, "norm", layer_ ? "layer_norm_backward_weight" : "rms_norm_backward_weight", spec.type)) {}

  void forward(Stream& stream, const void* src, const void* gamma, const void* beta, void* dst, float* mean, float* rstd) override {
    forward_.launch(stream, rows_.groups, rows_.size, src, gamma, spec_.bias ? beta : nullptr, dst, mean, rstd, spec_.rows, spec_.width,
                    spec_.epsilon, spec_.gamma_shift, int{layer_}, rows_.chunk);
  }

  void backward_input(Stream& stream, const void* src, const void* diff_dst, const void* gamma, const float* mean, const float* rstd,
                      const void* add, void* diff_src) override {
    backward_input_.launch(stream, rows_.groups, rows_.size, src, diff_dst, gamma, mean, rstd, spec_.add_diff_src ? add : nullptr, diff_src,
                           spec_.rows, spec_.width, spec_.gamma_shift, int{layer_}, rows_.chunk);
  }

  void backward_weight(Stream& stream, const void* src, const void* diff_dst, const float* mean, const float* rstd, float* diff_gamma,
                       float* diff_beta, bool accumulate) override {
    if (layer_)
      backward_weight_.launch_2d(stream, 1, columns_.groups, columns_.size_y, columns_.size_x, src, diff_dst, mean, rstd, diff_gamma,
                                 spec_.bias ? diff_beta : nullptr, spec_.rows, spec_.width, int{accumulate});
    else
      backward_weight_.launch_2d(stream, 1, columns_.groups, columns_.size_y, columns_.size_x, src, diff_dst, rstd, diff_gamma, spec_.rows,
                                 spec_.width, int{accumulate});
  }

 private:
  NormSpec spec_;
  bool layer_;
  TeamSplit rows_;
  ColumnSplit columns_;
  const Kernel &forward_, &backward_input_, &backward_weight_;
};

}  // namespace

constexpr Implementation<Norm, NormSpec> sycl_norm{
    "sycl", [](const Device&, const NormSpec&) -> Refusal { return {}; },
    [](Device& device, const NormSpec& spec) -> std::unique_ptr<Norm> { return std::make_unique<SyclNorm>(device, spec); }};

}  // namespace ppengine::ops
