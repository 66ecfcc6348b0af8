// The optimizers' updates, and reductions over flat buffers.
#include "columns.hpp"
#include "rows.hpp"

// torch.optim.AdamW: decay first, then the moments, then the step. decay = 1 - lr · weight_decay, step = lr / (1 - beta1^t),
// root = sqrt(1 - beta2^t).
template <bool with_copy>
inline void adamw_update(float* parameter, const float* gradient, float* moment1, float* moment2, bf16_bits* copy, long count, long chunk,
                         float scale, float decay, float step, float root, float rest1, float beta2, float rest2, float epsilon) {
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

KERNEL_1D adamw(float* parameter, const float* gradient, float* moment1, float* moment2, long count, long chunk, float scale, float decay,
                float step, float root, float rest1, float beta2, float rest2, float epsilon) {
  adamw_update<false>(parameter, gradient, moment1, moment2, nullptr, count, chunk, scale, decay, step, root, rest1, beta2, rest2, epsilon);
}

KERNEL_1D adamw_copy(float* parameter, const float* gradient, float* moment1, float* moment2, bf16_bits* copy, long count, long chunk,
                     float scale, float decay, float step, float root, float rest1, float beta2, float rest2, float epsilon) {
  adamw_update<true>(parameter, gradient, moment1, moment2, copy, count, chunk, scale, decay, step, root, rest1, beta2, rest2, epsilon);
}

// Up or down with chances such that the mean is the value: bits that are cut off are compared with random ones.
inline bf16_bits to_bf16_at_random(float value, unsigned random) {
  const unsigned bits = sycl::bit_cast<unsigned>(value);
  const bool finite = (bits & 0x7f800000u) != 0x7f800000u;
  return static_cast<bf16_bits>((finite ? bits + (random & 0xffffu) : bits) >> 16);
}

// Moments in bf16; copy may be null. The random bits are a hash of the step and of the moments themselves, not of the place: ranks that
// have a parameter in common have it at places of their own, and must stay equal.
KERNEL_1D adamw_narrow(float* parameter, const float* gradient, bf16_bits* moment1, bf16_bits* moment2, bf16_bits* copy, long count,
                       long chunk, float scale, float decay, float step, float root, float rest1, float beta2, float rest2, float epsilon,
                       int number) {
  for_chunk(count, chunk, [=](long i) {
    const float g = gradient[i] * scale, before = load(moment1, i);
    const float m = before + (g - before) * rest1;
    const float v = load(moment2, i) * beta2 + rest2 * g * g;
    const float p = parameter[i] * decay - step * m / (sycl::sqrt(v) / root + epsilon);
    unsigned hash = sycl::bit_cast<unsigned>(m) * 0x9E3779B9u ^ sycl::bit_cast<unsigned>(v) ^ static_cast<unsigned>(number) * 0x85EBCA6Bu;
    hash = (hash ^ (hash >> 16)) * 0x7FEB352Du;
    hash = (hash ^ (hash >> 15)) * 0x846CA68Bu;
    hash ^= hash >> 16;
    moment1[i] = to_bf16_at_random(m, hash);
    moment2[i] = to_bf16_at_random(v, hash >> 16);
    parameter[i] = p;
    if (copy) copy[i] = to_bf16(p);
  });
}

// torch.optim.SGD: d = g + weight_decay · p; velocity = momentum · velocity + d (d at first); p -= lr · velocity.
// velocity and copy may be null. The momentum is passed as 0 at first: what lies in velocity then does not count.
KERNEL_1D sgd(float* parameter, const float* gradient, float* velocity, bf16_bits* copy, long count, long chunk, float scale, float lr,
              float momentum, float weight_decay, int first) {
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

// torch.optim.Adafactor. average += weight · (factor · sums - average)
KERNEL_1D adafactor_average(float* average, const float* sums, long count, long chunk, float factor, float weight) {
  for_chunk(count, chunk, [=](long i) { average[i] += weight * (factor * sums[i] - average[i]); });
}

// update = g / sqrt(estimate): of a matrix row[i] · column[j] / mean of row, of a vector (column is null) row itself.
KERNEL_1D adafactor_update(const float* gradient, const float* row, const float* column, const float* row_sum, float* update, long count,
                           long chunk, long columns, float scale, float inverse_rows, float epsilon) {
  const float mean = column ? sycl::fmax(*row_sum * inverse_rows, epsilon) : 1.0f;
  for_chunk(count, chunk, [=](long i) {
    const float estimate = column ? row[i / columns] * column[i % columns] / mean : row[i];
    update[i] = gradient[i] * scale / sycl::sqrt(sycl::fmax(estimate, epsilon * epsilon));
  });
}

#define STAMP(SUFFIX, T)                                                                                                                   \
  KERNEL_2D sum_rows_##SUFFIX(const T* src, float* sums, long rows, long width, int accumulate) {                                          \
    sum_columns<1>(rows, width, sums, nullptr, accumulate != 0, [=](long row, long i) { return Pair{load(src, row * width + i), 0.0f}; }); \
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

// Adds up the sub-group's sums in a fixed tree; its first work-item has the result. By xor and not shift_group_left, which PoCL 6 lacks.
inline Exact sub_group_total(Exact sum) {
  const auto group = syclext::this_work_item::get_sub_group();
  const int lane = static_cast<int>(group.get_local_linear_id()), size = static_cast<int>(group.get_local_linear_range());
  for (int step = 1; step < size; step *= 2) {
    const Exact other{sycl::permute_group_by_xor(group, sum.high, step), sycl::permute_group_by_xor(group, sum.low, step)};
    if ((lane ^ step) < size) sum.add(other);
  }
  return sum;
}

// One partial sum per sub-group. The number of them depends on the compiler's choice of sub-groups: it stands in front.
inline void store_partial(float* workspace, Exact sum) {
  const auto item = item_1d();
  const auto group = syclext::this_work_item::get_sub_group();
  const long per_group = group.get_group_linear_range();
  const long index = static_cast<long>(item.get_group(0)) * per_group + static_cast<long>(group.get_group_linear_id());
  if (group.get_local_linear_id() == 0) {
    workspace[2 + 2 * index] = sum.high;
    workspace[3 + 2 * index] = sum.low;
    if (index == 0) *workspace = static_cast<float>(per_group * static_cast<long>(item.get_group_range(0)));
  }
}

// Exact sums of what term() makes of `terms` elements at a time: several additions hide each other's latency.
template <int terms, class Term>
inline void partial_sum(const float* src, float* workspace, long begin, long end, Term term) {
  const auto item = item_1d();
  const long lane = item.get_local_id(0), size = item.get_local_range(0);
  Exact sums[4];
  long i = begin;
  for (; i + 4 * terms * size <= end; i += 4 * terms * size)
    for (int k = 0; k < 4; ++k) {
      float values[terms];
      for (int t = 0; t < terms; ++t) values[t] = src[i + (k * terms + t) * size + lane];
      sums[k].add(term(values));
    }
  for (i += lane; i < end; i += size) {
    float values[terms] = {src[i]};
    sums[0].add(term(values));
  }
  sums[0].add(sums[1]);
  sums[2].add(sums[3]);
  sums[0].add(sums[2]);
  store_partial(workspace, sub_group_total(sums[0]));
}

KERNEL_1D sum_partial(const float* src, float* workspace, long count, long chunk) {
  const long begin = static_cast<long>(item_1d().get_group(0)) * chunk;
  partial_sum<1>(src, workspace, begin, lesser(begin + chunk, count), [](const float (&values)[1]) { return values[0]; });
}

// Squares have one sign: the rounding of sums of four of them, to either side, is far below that of the result.
struct FourSquares {
  float operator()(const float (&values)[4]) const {
    float sum = values[0] * values[0];
    for (int t = 1; t < 4; ++t) sum = sycl::fma(values[t], values[t], sum);
    return sum;
  }
};

KERNEL_1D sum_squares_partial(const float* src, float* workspace, long count, long chunk) {
  const long begin = static_cast<long>(item_1d().get_group(0)) * chunk;
  partial_sum<4>(src, workspace, begin, lesser(begin + chunk, count), FourSquares());
}

// Chunks from anywhere: [chunks[2 i], chunks[2 i + 1]) for group i.
KERNEL_1D sum_squares_chunks(const float* src, const long* chunks, float* workspace) {
  const long group = static_cast<long>(item_1d().get_group(0));
  partial_sum<4>(src, workspace, chunks[2 * group], chunks[2 * group + 1], FourSquares());
}

// One work-group; its first sub-group adds up the partial sums.
KERNEL_1D sum_final(const float* workspace, float* result) {
  const auto group = syclext::this_work_item::get_sub_group();
  if (group.get_group_linear_id() != 0) return;
  const long partials = static_cast<long>(*workspace), size = group.get_local_linear_range();
  Exact sum;
  for (long i = group.get_local_linear_id(); i < partials; i += size) sum.add(Exact{workspace[2 + 2 * i], workspace[3 + 2 * i]});
  sum = sub_group_total(sum);
  if (group.get_local_linear_id() == 0) *result = sum.high + sum.low;
}
