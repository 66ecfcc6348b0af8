// Linear layers over few rows on GPUs: wide loads. Inputs and groups must be multiples of 4.
#include "few_rows.hpp"

FEW_ROWS_ALL(4)
