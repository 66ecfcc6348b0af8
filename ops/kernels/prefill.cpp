// Many new tokens over a KV cache on CPUs: a work-item per query, so that a work-group's vector lanes are 16 queries that read the same keys
// and values. Scores, exponentials and sums stay in registers; queries and results lie in local memory with the lanes side by side.
#include "attention_shape.hpp"
#include "math.hpp"
#include "values.hpp"

constexpr int prefill_lanes = 16, prefill_width = 256, prefill_keys = 8;
syclexp::work_group_static<float[prefill_lanes * prefill_width]> prefill_query;
syclexp::work_group_static<float[prefill_lanes * prefill_width]> prefill_result;

extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::nd_range_kernel<1>)) SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclexp::work_group_size<16>)) void
prefill_f32(const float* q, const float* k_cache, const float* v_cache, const int* filled, float* dst, const AttentionShape* shape) {
  const AttentionShape& s = *shape;
  const auto item = item_1d();
  const long lane = item.get_local_id(0), blocks = (s.length + prefill_lanes - 1) / prefill_lanes;
  const long block = item.get_group(0) % blocks, head = item.get_group(0) / blocks % s.heads, batch = item.get_group(0) / (blocks * s.heads);
  const long before = filled[batch], head_dim = s.head_dim, width = s.heads * head_dim;
  const long t = sycl::min(block * prefill_lanes + lane, s.length - 1);  // lanes behind the end do the last query again
  const long position = before + t, seen = before + sycl::min((block + 1) * prefill_lanes, s.length);
  float* const query = &prefill_query[0];
  float* const result = &prefill_result[0];
  q += batch * s.q_batch + t * s.q_token + head * head_dim;
  const float* const keys = k_cache + batch * s.k_batch + head / s.group * s.k_head;
  const float* const values = v_cache + batch * s.v_batch + head / s.group * s.v_head;
  for (long d = 0; d < head_dim; ++d) {
    query[d * prefill_lanes + lane] = s.scale * q[d];
    result[d * prefill_lanes + lane] = 0;
  }
  float largest = minus_infinity, total = 0;
  for (long first = 0; first < seen; first += prefill_keys) {
    const float *k[prefill_keys], *v[prefill_keys];
    float score[prefill_keys] = {};
#pragma unroll
    for (int i = 0; i < prefill_keys; ++i) {
      const long key = sycl::min(first + i, seen - 1);
      k[i] = keys + key * s.k_token;
      v[i] = values + key * s.v_token;
    }
    for (long d = 0; d < head_dim; ++d) {
      const float x = query[d * prefill_lanes + lane];
#pragma unroll
      for (int i = 0; i < prefill_keys; ++i) score[i] = sycl::fma(x, k[i][d], score[i]);
    }
    float now = largest;
#pragma unroll
    for (int i = 0; i < prefill_keys; ++i) {
      score[i] = first + i <= position ? score[i] : minus_infinity;
      now = sycl::fmax(now, score[i]);
    }
    const float factor = fast_exp(largest - now);
    total *= factor;
    largest = now;
#pragma unroll
    for (int i = 0; i < prefill_keys; ++i) {
      score[i] = fast_exp(score[i] - now);
      total += score[i];
    }
    for (long d = 0; d < head_dim; ++d) {
      float sum = result[d * prefill_lanes + lane] * factor;
#pragma unroll
      for (int i = 0; i < prefill_keys; ++i) sum = sycl::fma(score[i], v[i][d], sum);
      result[d * prefill_lanes + lane] = sum;
    }
  }
  const float share = 1.0f / total;
  dst += (batch * s.length + t) * width + head * head_dim;
  if (block * prefill_lanes + lane < s.length)
    for (long d = 0; d < head_dim; ++d) dst[d] = result[d * prefill_lanes + lane] * share;
}
