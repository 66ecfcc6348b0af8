// Linear layers over few rows on GPUs where the inputs are no multiple of 4.
#include "few_rows.hpp"

#define STAMP(SUFFIX, W)       \
  FEW_ROWS(SUFFIX, W, 1, 2, 1) \
  FEW_ROWS(SUFFIX, W, 2, 2, 1) \
  FEW_ROWS(SUFFIX, W, 4, 2, 1) \
  FEW_ROWS(SUFFIX, W, 8, 2, 1)
STAMP(f32, float)
STAMP(bf16, bf16_bits)
STAMP(int8, int8_bits)
