// Steps of decoding that follow one another on a CPU's stream, held back and run together: a launch costs as much as a megabyte of weights.
// Operands must stay where they are until the stream is waited for.
#pragma once

#include <ppengine/ops/detail/sycl.hpp>
#include <ppengine/ops/kernels/few_rows_steps.hpp>
#include <ppengine/ops/weight_linear.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::ops {

class StepChain : public HeldBack {
 public:
  static constexpr int64_t most_tokens = 8;  // what is more is no decoding

  static StepChain& of(Stream& stream);
  // Whether rotary embedding of many tokens is a step too.
  virtual bool takes_many_tokens() const { return false; }

  // A linear over up to 8 rows, weights in this format; gamma is the norm before it.
  virtual void add(Stream& stream, const LinearStep& step, WeightFormat format, int64_t rows) = 0;
  virtual void add(Stream& stream, const AttentionStep& step, int64_t tokens) = 0;
  virtual void add(Stream& stream, const RotaryStep& step, int64_t tokens) = 0;
};

// A linear's step; chunk: outputs of a work-item.
LinearStep step_of(const WeightLinearSpec& spec, const WeightLinear::Operands& at, int64_t chunk);

// On SYCL kernels (sycl/step_chain.cpp), and on the loops of ops/cpu (cpu/step_chain.cpp).
std::unique_ptr<StepChain> make_sycl_step_chain(Stream& stream);
std::unique_ptr<StepChain> make_cpu_step_chain(Stream& stream);

}  // namespace ppengine::ops
