// Steps of decoding in one launch.
#include <ppengine/ops/sycl/step_chain.hpp>

namespace ppengine::ops {
namespace {

// From so many rows on a norm of its own is faster than one in the linear, which costs a step less.
constexpr int64_t rows_to_normalize = 3;

}  // namespace

StepChain::StepChain(Stream& stream)
    : progress_(stream.device_ptr(), sizeof(StepProgress)),
      memory_(stream.device_ptr(), slots * sizeof(Steps)),
      groups_(stream.device().info().compute_units) {
  stream.zero(progress_.data(), progress_.bytes());
}

StepChain& StepChain::of(Stream& stream) {
  auto& impl = stream.impl();
  if (!impl.held_back) impl.held_back = std::make_unique<StepChain>(stream);
  return static_cast<StepChain&>(*impl.held_back);  // no other kind is there
}

Step& StepChain::next(Stream& stream, StepKind kind, int64_t chunks) {
  if (count_ == most_steps) launch(stream.impl());
  Step& step = steps().step[count_++];
  step.kind = kind;
  step.chunks = static_cast<int>(chunks);
  return step;
}

// Steps follow one another: the memory of one norm is free for the next.
const float* StepChain::add_norm(Stream& stream, const LinearStep& step, int64_t rows) {
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

void StepChain::add(Stream& stream, const LinearStep& step, const Kernel& kernel, int64_t rows) {
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

void StepChain::add(Stream& stream, const AttentionStep& step, int64_t tokens) {
  next(stream, StepKind::attention, tokens * step.shape.heads).attention = step;
}

void StepChain::add(Stream& stream, const RotaryStep& step, int64_t tokens) { next(stream, StepKind::rotary, tokens).rotary = step; }

void StepChain::launch(Stream::Impl& stream) {
  if (count_ == 0) return;
  Steps& launched = steps();
  launched.count = static_cast<int>(count_);
  const Kernel& kernel = kernel_ ? *kernel_ : stream.device->kernels().get("few_rows_f32", "few_rows_f32_1");
  const int64_t rows = rows_;
  count_ = 0;
  kernel_ = nullptr;
  slot_ = (slot_ + 1) % slots;
  stream.submit([&](sycl::handler& handler) {
    handler.set_args(&launched, progress_.as<StepProgress>(), rows);
    handler.parallel_for(sycl::nd_range<1>(groups_, 1), kernel.kernel);
  });
}

}  // namespace ppengine::ops
