// What one launch of kernels/few_rows_cpu.hpp does, as host and kernels share it: the steps of decoding, one after the other.
#pragma once

#include "attention_shape.hpp"

// dst[rows,out] = epilogue(norm(src[rows,in]) · Wᵀ), `chunk` outputs at a time.
struct LinearStep {
  const float* src;
  const void* weight;
  const float *scales, *bias, *residual, *gate, *gamma, *beta;  // null: there is none; gamma stands for the norm
  float* dst;
  long in, out, group, chunk;
  float epsilon;
  int centered, activation;
};

// dst = norm(src), a row at a time: for a linear over several rows, which would do it again for every output.
struct NormStep {
  const float *src, *gamma, *beta;
  float* dst;
  long in;
  float epsilon;
  int centered;
};

// New keys and values go into the caches, queries attend to what is there; a head of one token at a time.
struct AttentionStep {
  const float *q, *k, *v;
  const int* filled;
  float *k_cache, *v_cache, *dst;
  long k_stride, v_stride, capacity;  // strides of new keys and values, between tokens
  AttentionShape shape;
};

// One token at a time.
struct RotaryStep {
  const float *src, *cosines, *sines;
  const int* first;
  float* dst;
  long src_stride, dst_stride;
  RotaryShape shape;
};

enum class StepKind : int { linear, norm, attention, rotary };
struct Step {
  StepKind kind;
  int chunks;  // that work-groups can do side by side
  union {
    LinearStep linear;
    NormStep norm;
    AttentionStep attention;
    RotaryStep rotary;
  };
};

constexpr int most_steps = 64;
struct Steps {
  Step step[most_steps];
  int count;
};

// Memory that work-groups agree with each other in; zero before and after a launch.
struct StepProgress {
  int claimed[most_steps], finished[most_steps];  // chunks, by step
  int left;                                       // work-groups that have nothing to do any more
};
