// Causal attention on bf16 tensors, for heads up to 64, 128 and 256 wide.
#include "attention_tiles.hpp"

ATTENTION_KERNELS(bf16, bf16_bits, 64, 4)
ATTENTION_KERNELS(bf16, bf16_bits, 128, 8)
ATTENTION_KERNELS(bf16, bf16_bits, 256, 16)
