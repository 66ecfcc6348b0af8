// The implementations of Linear, and what they share. Used by ops/linear.cpp, ops/onednn/linear.cpp and ops/sycl/linear.cpp only.
#pragma once

#include <ppengine/ops/linear.hpp>

namespace ppengine::ops {

Refusal onednn_linear_refusal(const Device& device, const LinearSpec& spec);
std::unique_ptr<Linear> make_onednn_linear(Device& device, const LinearSpec& spec);
Refusal sycl_linear_refusal(const Device& device, const LinearSpec& spec);
std::unique_ptr<Linear> make_sycl_linear(Device& device, const LinearSpec& spec);

// sums[columns] (+)= column sums of src[rows,columns]: the gradient of a bias.
class ColumnSums {
 public:
  ColumnSums(Device& device, Type type);
  void run(Stream& stream, const void* src, float* sums, int64_t rows, int64_t columns, bool accumulate) const;

 private:
  const Kernel* kernel_;
};

// backward_weight of no rows.
void clear_gradients(Stream& stream, const LinearSpec& spec, float* diff_weight, float* diff_bias, bool accumulate);

}  // namespace ppengine::ops
