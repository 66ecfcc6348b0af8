// Causal attention on f32 tensors, for heads up to 64, 128 and 256 wide.
#include "attention_tiles.hpp"

ATTENTION_KERNELS(f32, float, 64, 4)
ATTENTION_KERNELS(f32, float, 128, 8)
ATTENTION_KERNELS(f32, float, 256, 16)
