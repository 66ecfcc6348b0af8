// Linear in f32 on CPUs with vectors: forward and weight gradient by cpu::gemm, the input gradient by oneDNN's sgemm
// (bench/linear_layouts.md has the rates).
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/linear_implementations.hpp>

namespace ppengine::ops {
namespace {

using cpu::floats;

class CpuLinear : public Linear {
 public:
  explicit CpuLinear(const LinearSpec& spec) : spec_(spec) {}

  void forward(Stream& stream, const void* src, const void* weight, const void* bias, const void* residual, void* dst) override {
    stream.wait();
    cpu::gemm({spec_.rows, spec_.out, spec_.in, floats(src), false, floats(weight), spec_.layout == WeightLayout::out_in,
               spec_.bias ? floats(bias) : nullptr, spec_.residual ? floats(residual) : nullptr, floats(dst)});
  }
  void backward_input(Stream& stream, const void* diff_dst, const void* weight, const void* add, void* diff_src) override {
    sgemm_backward_input(stream, spec_, diff_dst, weight, add, diff_src);
  }
  void backward_weight(Stream& stream, const void* src, const void* diff_dst, float* diff_weight, float* diff_bias,
                       bool accumulate) override {
    stream.wait();
    const bool out_in = spec_.layout == WeightLayout::out_in;
    cpu::gemm({out_in ? spec_.out : spec_.in, out_in ? spec_.in : spec_.out, spec_.rows, floats(out_in ? diff_dst : src), true,
               floats(out_in ? src : diff_dst), false, nullptr, accumulate ? diff_weight : nullptr, diff_weight});
    if (spec_.bias) cpu::sum_rows(floats(diff_dst), spec_.rows, spec_.out, diff_bias, accumulate);
  }

 private:
  LinearSpec spec_;
};

}  // namespace

Refusal cpu_linear_refusal(const Device& device, const LinearSpec& spec) {
  constexpr int64_t least_rows = 64;
  if (auto refusal = cpu::refusal(device, spec.type)) return refusal;
  if (spec.rows < least_rows) return "packing the weights does not pay for less than 64 rows";
  return {};
}

std::unique_ptr<Linear> make_cpu_linear(Device&, const LinearSpec& spec) { return std::make_unique<CpuLinear>(spec); }

}  // namespace ppengine::ops
