// Layer norm, RMS norm and softmax: one team of work-items per row, the row staying in cache between its passes.
#include "columns.hpp"
#include "math.hpp"
#include "rows.hpp"

// The variance is summed around the mean (0 where not centered): no cancellation.
template <class Team, class T>
inline void norm_forward(const T* src, const T* gamma, const T* beta, T* dst, float* mean, float* rstd, long rows, long width,
                         float epsilon, float shift, bool centered, long chunk) {
  for_team_rows<Team>(rows, chunk, [=](const Team& team, long row) {
    const T* x = src + row * width;
    T* y = dst + row * width;
    const float m = centered ? row_sum(team, width, [=](long i) { return load(x, i); }) / width : 0.0f;
    const float variance = row_sum(team, width,
                                   [=](long i) {
                                     const float d = load(x, i) - m;
                                     return d * d;
                                   }) /
                           width;
    const float r = 1.0f / sycl::sqrt(variance + epsilon);
    if (beta)
      for_width(team, width, [=](long i) { store(y, i, (load(x, i) - m) * r * (load(gamma, i) + shift) + load(beta, i)); });
    else
      for_width(team, width, [=](long i) { store(y, i, (load(x, i) - m) * r * (load(gamma, i) + shift)); });
    if (team.lane() == 0) {
      if (centered && mean) mean[row] = m;
      if (rstd) rstd[row] = r;
    }
  });
}

// With x̂ = (x - mean) · rstd and g = diff · (gamma + shift): diff_src = rstd (g - mean(g) - x̂ mean(g x̂)); RMS norm lacks mean(g).
template <class Team, class T>
inline void norm_backward_input(const T* src, const T* diff_dst, const T* gamma, const float* mean, const float* rstd, const T* add,
                                T* diff_src, long rows, long width, float shift, bool centered, long chunk) {
  for_team_rows<Team>(rows, chunk, [=](const Team& team, long row) {
    const T* x = src + row * width;
    const T* d = diff_dst + row * width;
    const float m = centered ? mean[row] : 0.0f, r = rstd[row];
    const float along =
        row_sum(team, width, [=](long i) { return load(d, i) * (load(gamma, i) + shift) * ((load(x, i) - m) * r); }) / width;
    const float level = centered ? row_sum(team, width, [=](long i) { return load(d, i) * (load(gamma, i) + shift); }) / width : 0.0f;
    const auto gradient = [=](long i) { return r * (load(d, i) * (load(gamma, i) + shift) - level - (load(x, i) - m) * r * along); };
    T* out = diff_src + row * width;
    if (add)
      for_width(team, width, [=](long i) { store(out, i, gradient(i) + load(add, row * width + i)); });
    else
      for_width(team, width, [=](long i) { store(out, i, gradient(i)); });
  });
}

template <class Team, class T>
inline void softmax_forward(const T* src, T* dst, long rows, long width, long chunk) {
  for_team_rows<Team>(rows, chunk, [=](const Team& team, long row) {
    const T* x = src + row * width;
    T* y = dst + row * width;
    const float top = row_max(team, width, [=](long i) { return load(x, i); });
    if constexpr (sizeof(T) == sizeof(float)) {  // the result holds the exponentials in between
      const float total = row_sum(team, width, [=](long i) {
        const float e = fast_exp(x[i] - top);
        y[i] = e;
        return e;
      });
      const float factor = 1.0f / total;
      for_width(team, width, [=](long i) { y[i] *= factor; });
    } else {
      const float total = row_sum(team, width, [=](long i) { return fast_exp(load(x, i) - top); });
      const float factor = 1.0f / total;
      for_width(team, width, [=](long i) { store(y, i, fast_exp(load(x, i) - top) * factor); });
    }
  });
}

#define STAMP(SUFFIX, T, TEAM)                                                                                                          \
  KERNEL_1D norm_forward_##SUFFIX(const T* src, const T* gamma, const T* beta, T* dst, float* mean, float* rstd, long rows, long width, \
                                  float epsilon, float shift, int centered, long chunk) {                                               \
    norm_forward<TEAM>(src, gamma, beta, dst, mean, rstd, rows, width, epsilon, shift, centered != 0, chunk);                           \
  }                                                                                                                                     \
  KERNEL_1D norm_backward_input_##SUFFIX(const T* src, const T* diff_dst, const T* gamma, const float* mean, const float* rstd,         \
                                         const T* add, T* diff_src, long rows, long width, float shift, int centered, long chunk) {     \
    norm_backward_input<TEAM>(src, diff_dst, gamma, mean, rstd, add, diff_src, rows, width, shift, centered != 0, chunk);               \
  }                                                                                                                                     \
  KERNEL_1D softmax_##SUFFIX(const T* src, T* dst, long rows, long width, long chunk) {                                                 \
    softmax_forward<TEAM>(src, dst, rows, width, chunk);                                                                                \
  }                                                                                                                                     \
  KERNEL_1D softmax_backward_##SUFFIX(const T* dst, const T* diff_dst, T* diff_src, long rows, long width, long chunk) {                \
    for_team_rows<TEAM>(rows, chunk, [=](const TEAM& team, long row) {                                                                  \
      const T* y = dst + row * width;                                                                                                   \
      const T* d = diff_dst + row * width;                                                                                              \
      const float along = row_sum(team, width, [=](long i) { return load(y, i) * load(d, i); });                                        \
      for_width(team, width, [=](long i) { store(diff_src, row * width + i, load(y, i) * (load(d, i) - along)); });                     \
    });                                                                                                                                 \
  }
FOR_EACH_TYPE_AND_TEAM(STAMP)
#undef STAMP

#define STAMP(SUFFIX, T)                                                                                                                  \
  KERNEL_2D layer_norm_backward_weight_##SUFFIX(const T* src, const T* diff_dst, const float* mean, const float* rstd, float* diff_gamma, \
                                                float* diff_beta, long rows, long width, int accumulate) {                                \
    sum_columns<2>(rows, width, diff_gamma, diff_beta, accumulate != 0, [=](long row, long i) {                                           \
      const float d = load(diff_dst, row * width + i);                                                                                    \
      return Pair{d * ((load(src, row * width + i) - mean[row]) * rstd[row]), d};                                                         \
    });                                                                                                                                   \
  }                                                                                                                                       \
  KERNEL_2D rms_norm_backward_weight_##SUFFIX(const T* src, const T* diff_dst, const float* rstd, float* diff_gamma, long rows,           \
                                              long width, int accumulate) {                                                               \
    sum_columns<1>(rows, width, diff_gamma, nullptr, accumulate != 0, [=](long row, long i) {                                             \
      return Pair{load(diff_dst, row * width + i) * (load(src, row * width + i) * rstd[row]), 0.0f};                                      \
    });                                                                                                                                   \
  }
FOR_EACH_TYPE(STAMP)
#undef STAMP

// From the statistics that oneDNN keeps to ours.
KERNEL_1D variance_to_rstd(const float* variance, float* rstd, float epsilon, long count, long chunk) {
  for_chunk(count, chunk, [=](long i) { rstd[i] = 1.0f / sycl::sqrt(variance[i] + epsilon); });
}
