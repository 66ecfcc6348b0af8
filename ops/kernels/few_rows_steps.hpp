// What one launch of kernels/few_rows_cpu.hpp does, as host and kernels share it.
#pragma once

// dst[rows,out] = epilogue(norm(src[rows,in]) · Wᵀ), `chunk` outputs at a time.
struct FewRowsStep {
  const float* src;
  const void* weight;
  const float *scales, *bias, *residual, *gate, *gamma, *beta;  // null: there is none; gamma stands for the norm
  float* dst;
  long in, out, group, chunk;
  float epsilon;
  int centered, activation;
};

// One after the other.
constexpr int few_rows_most_steps = 8;
struct FewRowsSteps {
  FewRowsStep step[few_rows_most_steps];
  int count;
};

// Memory that work-groups agree with each other in; zero before and after a launch.
struct FewRowsProgress {
  int claimed[few_rows_most_steps], finished[few_rows_most_steps];  // chunks, by step
  int left;                                                         // work-groups that have nothing to do any more
};
