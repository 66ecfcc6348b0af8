// Activations in f32 on CPUs with vectors.
#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

using cpu::floats;

constexpr std::int64_t part = 16384;  // elements of a thread at a time

const cpu::ActivationLoops& loops_of(ActivationKind kind) {
  const cpu::ActivationTable& table = *cpu::activation_loops();
  switch (kind) {
    case ActivationKind::gelu_tanh:
      return table.gelu_tanh;
    case ActivationKind::gelu_erf:
      return table.gelu_erf;
    case ActivationKind::silu:
      return table.silu;
    default:
      return table.relu;
  }
}

class CpuActivation final : public Activation {
 public:
  explicit CpuActivation(const ActivationSpec& spec) : count_(spec.count), loops_(loops_of(spec.kind)) {}

  void forward(Stream& stream, const void* src, void* dst) override {
    stream.wait();
    cpu::for_parts(count_, part,
                   [&](std::int64_t begin, std::int64_t end) { loops_.forward(floats(src) + begin, floats(dst) + begin, end - begin); });
  }
  void backward_input(Stream& stream, const void* src, const void* diff_dst, void* diff_src) override {
    stream.wait();
    cpu::for_parts(count_, part, [&](std::int64_t begin, std::int64_t end) {
      loops_.backward(floats(src) + begin, floats(diff_dst) + begin, floats(diff_src) + begin, end - begin);
    });
  }

 private:
  std::int64_t count_;
  const cpu::ActivationLoops& loops_;
};

}  // namespace

constexpr Implementation<Activation, ActivationSpec> cpu_activation{
    "cpu", [](const Device& device, const ActivationSpec& spec) { return cpu::refusal(device, spec.type); },
    [](Device&, const ActivationSpec& spec) -> std::unique_ptr<Activation> { return std::make_unique<CpuActivation>(spec); }};

}  // namespace ppengine::ops
