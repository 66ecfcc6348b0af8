// Causal attention on tensor cores, for heads up to 64 wide.
#ifdef __NVPTX__
#include "attention_tensor_backward.hpp"

TENSOR_ATTENTION(64)
#endif
