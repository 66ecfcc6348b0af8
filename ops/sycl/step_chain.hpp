// Steps of decoding that follow one another on a CPU's stream: one launch, since one costs as much as a megabyte of weights. Operands must
// stay where they are until the stream is waited for.
#pragma once

#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/kernels/few_rows_steps.hpp>

namespace ppengine::ops {

class StepChain final : public HeldBack {
 public:
  static constexpr int64_t most_tokens = 8;  // what is more is no decoding

  explicit StepChain(Stream& stream);
  static StepChain& of(Stream& stream);

  void add(Stream& stream, const LinearStep& step, const Kernel& kernel, int64_t rows);
  void add(Stream& stream, const AttentionStep& step, int64_t tokens);
  void add(Stream& stream, const RotaryStep& step, int64_t tokens);
  void launch(Stream::Impl& stream) override;

 private:
  Step& next(Stream& stream, StepKind kind, int64_t chunks);
  const float* add_norm(Stream& stream, const LinearStep& step, int64_t rows);  // gives where its result will be
  Steps& steps() { return memory_.as<Steps>()[slot_]; }                         // a CPU's memory is the host's

  static constexpr size_t slots = 2 * Stream::Impl::max_outstanding;  // what was launched so long ago is done
  Buffer progress_, memory_, normed_;
  size_t groups_, slot_ = 0, count_ = 0;
  const Kernel* kernel_ = nullptr;  // of the linears; null: there is none yet, and any will do
  int64_t rows_ = 1;
};

}  // namespace ppengine::ops
