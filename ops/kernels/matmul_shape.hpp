// The sizes and strides of a batched matrix product, as host and kernel share them.
#pragma once

struct MatmulShape {
  long m, n, k;
  long a_m, a_k, b_k, b_n, c_m, c_n;  // strides in elements
  long inner_batch;                   // the batch is outer × inner; batch i is (i / inner, i % inner)
  long a_outer, a_inner, b_outer, b_inner, c_outer, c_inner;
  float alpha;
};
