// Linear layers over few rows on GPUs where the inputs are no multiple of 4.
#include "few_rows.hpp"

FEW_ROWS_ALL(1)
