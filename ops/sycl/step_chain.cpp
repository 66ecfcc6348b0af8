// Steps of decoding in one launch of a SYCL kernel (kernels/few_rows_cpu.hpp).
#include <ppengine/ops/detail/step_chain.hpp>

#include <fmt/core.h>

#include <ppengine/ops/cpu/refusal.hpp>

namespace ppengine::ops {
namespace {

// From so many rows on a norm of its own is faster than one in the linear, which costs a step less.
constexpr int64_t rows_to_normalize = 3;

class SyclStepChain final : public StepChain {
 public:
  explicit SyclStepChain(Stream& stream)
      : progress_(stream.device_ptr(), sizeof(StepProgress)),
        memory_(stream.device_ptr(), slots * sizeof(Steps)),
        groups_(stream.device().info().compute_units) {
    stream.zero(progress_.data(), progress_.bytes());
  }

  void add(Stream& stream, const LinearStep& step, WeightFormat format, int64_t rows) override {
    const Kernel& kernel = kernel_of(stream.device(), format, rows);
    if (kernel_ && (&kernel != kernel_ || rows != rows_)) launch(stream.impl());
    LinearStep added = step;
    if (step.gamma && rows >= rows_to_normalize) {
      added.src = add_norm(stream, step, rows);
      added.gamma = added.beta = nullptr;
    }
    next(stream, StepKind::linear, (step.out + step.chunk - 1) / step.chunk).linear = added;
    kernel_ = &kernel;
    rows_ = rows;
  }
  void add(Stream& stream, const AttentionStep& step, int64_t tokens) override {
    next(stream, StepKind::attention, tokens * step.shape.heads).attention = step;
  }
  void add(Stream& stream, const RotaryStep& step, int64_t tokens) override { next(stream, StepKind::rotary, tokens).rotary = step; }

  void launch(Stream::Impl& stream) override {
    if (count_ == 0) return;
    Steps& launched = steps();
    launched.count = static_cast<int>(count_);
    const Kernel& kernel = kernel_ ? *kernel_ : kernel_of(*stream.device, WeightFormat::f32, 1);
    const int64_t rows = rows_;
    count_ = 0;
    kernel_ = nullptr;
    slot_ = (slot_ + 1) % slots;
    stream.submit([&](sycl::handler& handler) {
      handler.set_args(&launched, progress_.as<StepProgress>(), rows);
      handler.parallel_for(sycl::nd_range<1>(groups_, 1), kernel.kernel);
    });
  }

 private:
  Step& next(Stream& stream, StepKind kind, int64_t chunks) {
    if (count_ == most_steps) launch(stream.impl());
    Step& step = steps().step[count_++];
    step.kind = kind;
    step.chunks = static_cast<int>(chunks);
    return step;
  }
  // Gives where its result will be. Steps follow one another: the memory of one norm is free for the next.
  const float* add_norm(Stream& stream, const LinearStep& step, int64_t rows) {
    const size_t bytes = static_cast<size_t>(rows * step.in) * sizeof(float);
    if (normed_.bytes() < bytes) {
      launch(stream.impl());
      stream.wait();
      normed_ = Buffer(stream.device_ptr(), bytes);
    }
    auto* const dst = normed_.as<float>();
    next(stream, StepKind::norm, rows).norm = {step.src, step.gamma, step.beta, dst, step.in, step.epsilon, step.centered};
    return dst;
  }
  const Kernel& kernel_of(Device& device, WeightFormat format, int64_t rows) {
    const size_t size = rows <= 1 ? 0 : rows <= 2 ? 1 : rows <= 4 ? 2 : 3;
    const Kernel*& kernel = kernels_[static_cast<size_t>(format)][size];
    if (!kernel) {
      const std::string file = fmt::format("few_rows_{}", name_of(format));
      kernel = &device.kernels().get(file, fmt::format("{}_{}", file, 1 << size));
    }
    return *kernel;
  }
  Steps& steps() { return memory_.as<Steps>()[slot_]; }  // a CPU's memory is the host's

  static constexpr size_t slots = 2 * Stream::Impl::max_outstanding;  // what was launched so long ago is done
  Buffer progress_, memory_, normed_;
  size_t groups_, slot_ = 0, count_ = 0;
  const Kernel* kernels_[4][4] = {};  // by format, and by rows up to 1, 2, 4, 8
  const Kernel* kernel_ = nullptr;    // of the linears; null: there is none yet, and any will do
  int64_t rows_ = 1;
};

}  // namespace

std::unique_ptr<StepChain> make_sycl_step_chain(Stream& stream) { return std::make_unique<SyclStepChain>(stream); }

StepChain& StepChain::of(Stream& stream) {
  auto& impl = stream.impl();
  if (!impl.held_back)
    impl.held_back = cpu::refusal(stream.device(), Type::f32) ? make_sycl_step_chain(stream) : make_cpu_step_chain(stream);
  return static_cast<StepChain&>(*impl.held_back);  // no other kind is there
}

}  // namespace ppengine::ops
