// The epilogue of a decoding linear: bias, activation or gate, residual.
#include <algorithm>

#include <ppengine/ops/cpu/loops_steps.hpp>

namespace ppengine::ops::cpu {
namespace {

const ActivationLoops* activation_of(const LinearStep& step) {
  const ActivationTable& table = *activation_loops();
  switch (step.activation) {  // as in kernels/few_rows_shared.hpp
    case 1:
      return &table.gelu_tanh;
    case 2:
      return &table.gelu_erf;
    case 3:
      return &table.silu;
    case 4:
      return &table.relu;
    default:
      return nullptr;
  }
}

}  // namespace

void finish_outputs(const LinearStep& step, float* sums, std::int64_t row_sums, std::int64_t first_row, std::int64_t rows,
                    std::int64_t begin, std::int64_t end) {
  const ActivationLoops* const activation = activation_of(step);
  const std::int64_t count = end - begin;
  for (std::int64_t row = 0; row < rows; ++row, sums += row_sums) {
    const std::int64_t at = (first_row + row) * step.out + begin;
    float* const dst = step.dst + at;
    if (step.bias)
      for (std::int64_t i = 0; i < count; ++i) sums[i] += step.bias[begin + i];
    if (step.gate) {
      activation->forward(step.gate + at, dst, count);
      for (std::int64_t i = 0; i < count; ++i) dst[i] *= sums[i];
    } else if (activation) {
      activation->forward(sums, dst, count);
    } else if (step.residual) {
      for (std::int64_t i = 0; i < count; ++i) dst[i] = sums[i] + step.residual[at + i];
    } else {
      std::copy_n(sums, count, dst);
    }
  }
}

}  // namespace ppengine::ops::cpu
