// Linear layers over few rows on CPUs, f32 weights.
#include "few_rows_cpu.hpp"

FEW_ROWS_STEPS(f32, float, 1, 4)
FEW_ROWS_STEPS(f32, float, 2, 4)
FEW_ROWS_STEPS(f32, float, 4, 4)
FEW_ROWS_STEPS(f32, float, 8, 2)
