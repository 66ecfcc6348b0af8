// Products and sums of f32 matrices on CPUs with vectors, by the calling thread and the workers that oneDNN and the OpenCL runtime use too.
#pragma once

#include <cstdint>

namespace ppengine::ops {
struct PackedWeight;
}

namespace ppengine::ops::cpu {

bool has_vectors();           // whether this CPU can: it has vectors that the loops are compiled for
const char* vector_target();  // which: "AVX2"

// c[m,n] = a · b (+ bias[n]) (+ add[m,n]), row-major; add may be c. Each element is summed in an order that depends on k alone: not
// on the number of rows, columns or threads.
struct Gemm {
  std::int64_t m, n, k;
  const float* a;  // [m,k], or, transposed, [k,m]
  bool transposed_a;
  const float* b;  // [k,n], or, transposed, [n,k]
  bool transposed_b;
  const float* bias;  // or null
  const float* add;   // or null
  float* c;
  // b is a packed weight [n,k] of this form, which is widened panel by panel: no f32 form of all of it is made. transposed_b is true.
  const PackedWeight* packed_b = nullptr;
};
void gemm(const Gemm& product);

// sums[columns] (+)= the sum of a's rows, one after the other.
void sum_rows(const float* a, std::int64_t rows, std::int64_t columns, float* sums, bool accumulate);

}  // namespace ppengine::ops::cpu
