// Attention of f32 on CPUs with vectors, by the calling thread and the workers that cpu::gemm uses too.
#pragma once

#include <ppengine/ops/attention.hpp>

namespace ppengine::ops::cpu {

// Per sequence, head and token: the largest exponential, as an exponent of two, and one over the sum of all exponentials divided by it.
constexpr std::int64_t attention_saved = 2;

struct AttentionInputs {
  const float *q, *k, *v;
};
struct AttentionGradients {
  float *q, *k, *v;
};

// Every result depends on its own sequence alone, and has the same bits whatever the number of threads. saved may be null.
void attention_forward(const AttentionSpec& spec, const AttentionInputs& in, float* dst, float* saved);
void attention_backward(const AttentionSpec& spec, const AttentionInputs& in, const float* dst, const float* diff_dst, const float* saved,
                        const AttentionGradients& diff);

}  // namespace ppengine::ops::cpu
