// The optimizers' kernels: one pass over the flat buffers.
#include <ppengine/ops/optimizer.hpp>

#include <cmath>

#include <ppengine/ops/detail/launch.hpp>
#include <ppengine/ops/device/kernel_table.hpp>

namespace ppengine::ops {

void adamw(Stream& stream, const AdamWStep& step, float* parameter, const float* gradient, float* moment1, float* moment2,
           void* compute_copy, std::int64_t count) {
  if (count <= 0) return;
  // The corrections in double, as torch computes them on the host.
  const double correction1 = 1.0 - std::pow(static_cast<double>(step.beta1), static_cast<double>(step.step));
  const double correction2 = 1.0 - std::pow(static_cast<double>(step.beta2), static_cast<double>(step.step));
  const auto decay = static_cast<float>(1.0 - static_cast<double>(step.lr) * step.weight_decay);
  const auto size = static_cast<float>(step.lr / correction1);
  const auto root = static_cast<float>(std::sqrt(correction2));
  const float rest1 = 1.0f - step.beta1, rest2 = 1.0f - step.beta2;
  const Split split = split_elements(stream.device(), count);
  if (compute_copy)
    plain_kernel(stream.device(), PlainKernel::adamw_copy)
        .launch(stream, split.groups, split.size, parameter, gradient, moment1, moment2, compute_copy, count, split.chunk,
                step.gradient_scale, decay, size, root, rest1, step.beta2, rest2, step.epsilon);
  else
    plain_kernel(stream.device(), PlainKernel::adamw)
        .launch(stream, split.groups, split.size, parameter, gradient, moment1, moment2, count, split.chunk, step.gradient_scale, decay,
                size, root, rest1, step.beta2, rest2, step.epsilon);
}

void adamw_narrow(Stream& stream, const AdamWStep& step, float* parameter, const float* gradient, void* moment1, void* moment2,
                  void* compute_copy, std::int64_t count) {
  if (count <= 0) return;
  const double correction1 = 1.0 - std::pow(static_cast<double>(step.beta1), static_cast<double>(step.step));
  const double correction2 = 1.0 - std::pow(static_cast<double>(step.beta2), static_cast<double>(step.step));
  const Split split = split_elements(stream.device(), count);
  plain_kernel(stream.device(), PlainKernel::adamw_narrow)
      .launch(stream, split.groups, split.size, parameter, gradient, moment1, moment2, compute_copy, count, split.chunk,
              step.gradient_scale, static_cast<float>(1.0 - static_cast<double>(step.lr) * step.weight_decay),
              static_cast<float>(step.lr / correction1), static_cast<float>(std::sqrt(correction2)), 1.0f - step.beta1, step.beta2,
              1.0f - step.beta2, step.epsilon, static_cast<std::int32_t>(step.step));
}

void sgd(Stream& stream, const SgdStep& step, float* parameter, const float* gradient, float* velocity, void* compute_copy,
         std::int64_t count) {
  if (count <= 0) return;
  const Split split = split_elements(stream.device(), count);
  plain_kernel(stream.device(), PlainKernel::sgd)
      .launch(stream, split.groups, split.size, parameter, gradient, velocity, compute_copy, count, split.chunk, step.gradient_scale,
              step.lr, step.momentum, step.weight_decay, step.first ? 1 : 0);
}

void adafactor_average(Stream& stream, float* average, const float* sums, std::int64_t count, float factor, float weight) {
  const Split split = split_elements(stream.device(), count);
  stream.device()
      .kernels()
      .get("optimizer", "adafactor_average")
      .launch(stream, split.groups, split.size, average, sums, count, split.chunk, factor, weight);
}

void adafactor_update(Stream& stream, const AdafactorUpdate& how, const float* gradient, const float* row, const float* column,
                      const float* row_sum, float* update) {
  const std::int64_t count = how.rows * how.columns;
  const Split split = split_elements(stream.device(), count);
  stream.device()
      .kernels()
      .get("optimizer", "adafactor_update")
      .launch(stream, split.groups, split.size, gradient, row, column, row_sum, update, count, split.chunk, how.columns, how.scale,
              1.0f / static_cast<float>(how.rows), how.epsilon);
}

}  // namespace ppengine::ops
