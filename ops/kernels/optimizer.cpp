// The optimizers' updates, and reductions over flat buffers.
#include "columns.hpp"
#include "rows.hpp"

// torch.optim.AdamW: decay first, then the moments, then the step. decay = 1 - lr · weight_decay, step = lr / (1 - beta1^t),
// root = sqrt(1 - beta2^t).
template <bool with_copy>
inline void adamw_update(float* parameter, const float* gradient, float* moment1, float* moment2, bf16_bits* copy,
                         long count, long chunk, float scale, float decay, float step, float root, float rest1,
                         float beta2, float rest2, float epsilon) {
  for_chunk(count, chunk, [=](long i) {
    const float g = gradient[i] * scale;
    const float m = moment1[i] + (g - moment1[i]) * rest1;
    const float v = moment2[i] * beta2 + rest2 * g * g;
    const float p = parameter[i] * decay - step * m / (sycl::sqrt(v) / root + epsilon);
    moment1[i] = m;
    moment2[i] = v;
    parameter[i] = p;
    if constexpr (with_copy) copy[i] = to_bf16(p);
  });
}

KERNEL_1D adamw(float* parameter, const float* gradient, float* moment1, float* moment2, long count, long chunk,
                float scale, float decay, float step, float root, float rest1, float beta2, float rest2, float epsilon) {
  adamw_update<false>(parameter, gradient, moment1, moment2, nullptr, count, chunk, scale, decay, step, root, rest1,
                      beta2, rest2, epsilon);
}

KERNEL_1D adamw_copy(float* parameter, const float* gradient, float* moment1, float* moment2, bf16_bits* copy,
                     long count, long chunk, float scale, float decay, float step, float root, float rest1, float beta2,
                     float rest2, float epsilon) {
  adamw_update<true>(parameter, gradient, moment1, moment2, copy, count, chunk, scale, decay, step, root, rest1, beta2,
                     rest2, epsilon);
}

// torch.optim.SGD: d = g + weight_decay · p; velocity = momentum · velocity + d (d at first); p -= lr · velocity.
// velocity and copy may be null. The momentum is passed as 0 at first: what lies in velocity then does not count.
KERNEL_1D sgd(float* parameter, const float* gradient, float* velocity, bf16_bits* copy, long count, long chunk,
              float scale, float lr, float momentum, float weight_decay, int first) {
  for_chunk(count, chunk, [=](long i) {
    float d = gradient[i] * scale + weight_decay * parameter[i];
    if (velocity) {
      if (!first) d += momentum * velocity[i];
      velocity[i] = d;
    }
    const float p = parameter[i] - lr * d;
    parameter[i] = p;
    if (copy) copy[i] = to_bf16(p);
  });
}

#define STAMP(SUFFIX, T)                                                                                            \
  KERNEL_2D sum_rows_##SUFFIX(const T* src, float* sums, long rows, long width, int accumulate) {                    \
    sum_columns<1>(rows, width, sums, nullptr, accumulate != 0,                                                      \
                   [=](long row, long i) { return Pair{load(src, row * width + i), 0.0f}; });                        \
  }
FOR_EACH_TYPE(STAMP)
#undef STAMP

// A sum in two floats, about 48 bits: no device needs f64 for it. Additions must not be reordered.
struct Exact {
  float high = 0, low = 0;
  void add(float value) {  // Knuth's two-sum
    const float sum = high + value, part = sum - high;
    low += (high - (sum - part)) + (value - part);
    high = sum;
  }
  void add(Exact other) {
    add(other.high);
    low += other.low;
  }
};

syclexp::work_group_static<float[2][256]> item_sums;

// Every work-item's sum, added up by work-item 0 in order of the items. At most 256 work-items.
inline Exact group_total(Exact mine) {
  const auto item = item_1d();
  float(&all)[2][256] = item_sums;
  const int lane = static_cast<int>(item.get_local_id(0)), size = static_cast<int>(item.get_local_range(0));
  all[0][lane] = mine.high;
  all[1][lane] = mine.low;
  sycl::group_barrier(item.get_group());
  Exact total;
  if (lane == 0)
    for (int i = 0; i < size; ++i) total.add(Exact{all[0][i], all[1][i]});
  return total;
}

inline void store_partial(float* partials, Exact total) {
  const auto item = item_1d();
  if (item.get_local_id(0) != 0) return;
  partials[2 * item.get_group(0)] = total.high;
  partials[2 * item.get_group(0) + 1] = total.low;
}

KERNEL_1D sum_partial(const float* src, float* partials, long count, long chunk) {
  Exact sum;
  for_chunk(count, chunk, [&](long i) { sum.add(src[i]); });
  store_partial(partials, group_total(sum));
}

KERNEL_1D sum_squares_partial(const float* src, float* partials, long count, long chunk) {
  Exact sum;
  for_chunk(count, chunk, [&](long i) {
    const float square = src[i] * src[i];
    sum.add(square);
    sum.low += sycl::fma(src[i], src[i], -square);
  });
  store_partial(partials, group_total(sum));
}

KERNEL_1D sum_final(const float* partials, float* result, long groups) {
  Exact sum;
  for_range(0, groups, [&](long i) { sum.add(Exact{partials[2 * i], partials[2 * i + 1]}); });
  const Exact total = group_total(sum);
  if (item_1d().get_local_id(0) == 0) *result = total.high + total.low;
}
