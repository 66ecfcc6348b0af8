// Linear layers over few rows on CPUs, bf16 weights.
#include "few_rows_cpu.hpp"

FEW_ROWS_STEPS(bf16, bf16_bits, 1, 4)
FEW_ROWS_STEPS(bf16, bf16_bits, 2, 4)
FEW_ROWS_STEPS(bf16, bf16_bits, 4, 4)
FEW_ROWS_STEPS(bf16, bf16_bits, 8, 2)
