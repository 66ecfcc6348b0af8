// Linear layers over few rows on CPUs, 4-bit weights.
#include "few_rows_cpu.hpp"

FEW_ROWS_STEPS(int4, int4_bits, 1, 4)
FEW_ROWS_STEPS(int4, int4_bits, 2, 4)
FEW_ROWS_STEPS(int4, int4_bits, 4, 4)
FEW_ROWS_STEPS(int4, int4_bits, 8, 2)
