// Softmax by our own kernels.
#include <ppengine/ops/detail/implementations.hpp>
#include <ppengine/ops/detail/launch.hpp>

namespace ppengine::ops {
namespace {

class SyclSoftmax final : public Softmax {
 public:
  SyclSoftmax(Device& device, const SoftmaxSpec& spec)
      : spec_(spec),
        rows_(split_team_rows(device, spec.rows, spec.width)),
        forward_(typed_kernel(device, "norm", "softmax", spec.type, rows_.wide)),
        backward_(typed_kernel(device, "norm", "softmax_backward", spec.type, rows_.wide)) {}

  void forward(Stream& stream, const void* src, void* dst) override {
    forward_.launch(stream, rows_.groups, rows_.size, src, dst, spec_.rows, spec_.width, rows_.chunk);
  }

  void backward_input(Stream& stream, const void* dst, const void* diff_dst, void* diff_src) override {
    backward_.launch(stream, rows_.groups, rows_.size, dst, diff_dst, diff_src, spec_.rows, spec_.width, rows_.chunk);
  }

 private:
  SoftmaxSpec spec_;
  TeamSplit rows_;
  const Kernel &forward_, &backward_;
};

}  // namespace

constexpr Implementation<Softmax, SoftmaxSpec> sycl_softmax{
    "sycl", [](const Device&, const SoftmaxSpec&) -> Refusal { return {}; },
    [](Device& device, const SoftmaxSpec& spec) -> std::unique_ptr<Softmax> { return std::make_unique<SyclSoftmax>(device, spec); }};

}  // namespace ppengine::ops
