// Large products on tensor cores: 128 × 256 results for a work-group.
#ifdef __NVPTX__
#include "matmul_tensor.hpp"

using Large = Cut<2, 4, 4, 4>;
syclexp::work_group_static<Buffers<Large>> buffers;

TENSOR_PRODUCTS(large, Large, 8, bf16, bf16_bits)
TENSOR_PRODUCTS(large, Large, 8, bf16_f32, float)
#endif
