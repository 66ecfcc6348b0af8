// The optimizers' kernels over flat f32 buffers, as torch.optim defines them.
#pragma once

#include <cstdint>

#include <ppengine/ops/device/stream.hpp>

namespace ppengine::ops {

struct AdamWStep {
  float lr = 1e-3f, beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f, weight_decay = 0.01f;
  std::int64_t step = 1;        // from 1: for the bias corrections
  float gradient_scale = 1.0f;  // clipping: multiplies the gradient as it is read
};

// One pass over parameter, gradient and both moments; writes a bf16 copy of the parameters too where `compute_copy` is not null.
void adamw(Stream& stream, const AdamWStep& step, float* parameter, const float* gradient, float* moment1, float* moment2,
           void* compute_copy, std::int64_t count);

// The same with moments in bf16, rounded up or down at random with the right chances: what is too small for their steps is not lost. The
// random numbers depend on the step and the element alone.
void adamw_narrow(Stream& stream, const AdamWStep& step, float* parameter, const float* gradient, void* moment1, void* moment2,
                  void* compute_copy, std::int64_t count);

struct SgdStep {
  float lr = 1e-3f, momentum = 0.0f, weight_decay = 0.0f;
  bool first = false;  // the momentum buffer starts as the gradient
  float gradient_scale = 1.0f;
};

// velocity is null where momentum is zero.
void sgd(Stream& stream, const SgdStep& step, float* parameter, const float* gradient, float* velocity, void* compute_copy,
         std::int64_t count);

// Adafactor's second moments: average += weight · (factor · sums - average).
void adafactor_average(Stream& stream, float* average, const float* sums, std::int64_t count, float factor, float weight);

// gradient · scale over the root of the second moment, which is row[i] · column[j] / (row_sum / rows) of a matrix [rows, columns], and row
// itself of a vector (column is null). Not less than epsilon² .
struct AdafactorUpdate {
  std::int64_t rows = 1, columns = 1;
  float scale = 1.0f, epsilon = 0.0f;
};
void adafactor_update(Stream& stream, const AdafactorUpdate& how, const float* gradient, const float* row, const float* column,
                      const float* row_sum, float* update);

}  // namespace ppengine::ops
