// Layer norm and RMS norm in f32 on CPUs with vectors.
#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/cpu/refusal.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

using cpu::floats;

class CpuNorm final : public Norm {
 public:
  explicit CpuNorm(const NormSpec& spec) : spec_(spec), part_(divide_up(16384, spec.width)) {}

  void forward(Stream& stream, const void* src, const void* gamma, const void* beta, void* dst, float* mean, float* rstd) override {
    stream.wait();
    const auto norms = describe(gamma, beta);
    cpu::for_parts(spec_.rows, part_, [&](std::int64_t row, std::int64_t end) {
      loops_.forward(norms, at(floats(src), row), at(floats(dst), row), mean ? mean + row : nullptr, rstd ? rstd + row : nullptr,
                     end - row);
    });
  }

  void backward_input(Stream& stream, const void* src, const void* diff_dst, const void* gamma, const float* mean, const float* rstd,
                      const void* add, void* diff_src) override {
    stream.wait();
    const auto norms = describe(gamma, nullptr);
    cpu::for_parts(spec_.rows, part_, [&](std::int64_t row, std::int64_t end) {
      loops_.backward_input(norms, at(floats(src), row), at(floats(diff_dst), row), mean ? mean + row : nullptr, rstd + row,
                            spec_.add_diff_src ? at(floats(add), row) : nullptr, at(floats(diff_src), row), end - row);
    });
  }

  void backward_weight(Stream& stream, const void* src, const void* diff_dst, const float* mean, const float* rstd, float* diff_gamma,
                       float* diff_beta, bool accumulate) override {
    stream.wait();
    const auto norms = describe(nullptr, nullptr);
    cpu::for_parts(spec_.width, loops_.columns, [&](std::int64_t begin, std::int64_t end) {
      loops_.backward_weight(norms, floats(src) + begin, floats(diff_dst) + begin, mean, rstd, spec_.rows, end - begin, diff_gamma + begin,
                             spec_.bias ? diff_beta + begin : nullptr, accumulate);
    });
  }

 private:
  cpu::Norms describe(const void* gamma, const void* beta) const {
    return {spec_.width, spec_.epsilon, spec_.kind == NormKind::layer, floats(gamma), spec_.bias ? floats(beta) : nullptr};
  }
  template <class T>
  T* at(T* values, std::int64_t row) const {
    return values + row * spec_.width;
  }

  NormSpec spec_;
  const cpu::NormLoops& loops_ = *cpu::norm_loops();
  std::int64_t part_;  // rows of a thread at a time
};

}  // namespace

constexpr Implementation<Norm, NormSpec> cpu_norm{
    "cpu",
    [](const Device& device, const NormSpec& spec) {
      return spec.gamma_shift != 0 ? Refusal("gamma is not shifted here") : cpu::refusal(device, spec.type);
    },
    [](Device&, const NormSpec& spec) -> std::unique_ptr<Norm> { return std::make_unique<CpuNorm>(spec); }};

}  // namespace ppengine::ops
