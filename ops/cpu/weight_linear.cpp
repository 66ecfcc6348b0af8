// A linear layer of inference over 4-bit weights, with its inputs in bytes: products of integers on the loops of this folder.
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/cpu/step_chain.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

// Any number of rows: each has the same bits in whatever company.
class ByBytes final : public WeightLinear {
 public:
  explicit ByBytes(const WeightLinearSpec& spec) : spec_(spec) {}
  size_t workspace_bytes() const override { return 0; }
  void forward(Stream& stream, const Operands& at) override {
    static_cast<cpu::CpuStepChain&>(StepChain::of(stream)).add_by_bytes(stream, step_of(spec_, at, 0), spec_.rows);
  }

 private:
  WeightLinearSpec spec_;
};

Refusal refuse(const Device& device, const WeightLinearSpec& spec) {
  if (spec.weight.storage.format != WeightFormat::int4) return "it is for int4";
  if (!spec.byte_inputs) return "inputs are not to be rounded to bytes";
  return cpu::refusal(device, Type::f32);
}

}  // namespace

constexpr Implementation<WeightLinear, WeightLinearSpec> bytes_weight_linear{"cpu bytes", refuse, construct<ByBytes>};

}  // namespace ppengine::ops
