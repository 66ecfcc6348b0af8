// Steps of decoding in one launch.
#include <ppengine/ops/sycl/step_chain.hpp>

namespace ppengine::ops {

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

void StepChain::add(Stream& stream, const LinearStep& step, const Kernel& kernel, int64_t rows) {
  if (kernel_ && (&kernel != kernel_ || rows != rows_)) launch(stream.impl());
  next(stream, StepKind::linear, (step.out + step.chunk - 1) / step.chunk).linear = step;
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
