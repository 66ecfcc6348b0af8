// Linear layers over few rows on CPUs, int8 weights.
#include "few_rows_cpu.hpp"

FEW_ROWS_STEPS(int8, int8_bits, 1, 4)
FEW_ROWS_STEPS(int8, int8_bits, 2, 4)
FEW_ROWS_STEPS(int8, int8_bits, 4, 4)
FEW_ROWS_STEPS(int8, int8_bits, 8, 2)
