// Both ends of a language model: token embedding and cross entropy.
#include "math.hpp"
#include "rows.hpp"

// The largest logit of a row and Σ exp(logit - largest), in one pass: each work-item keeps its own maximum and rescales its sum when that
// grows, once per eight elements.
struct LogSum {
  float top, total;
};

template <class Team, class T>
inline LogSum log_sum(const Team& team, const T* x, long classes) {
  constexpr int block = 8;
  const long lane = team.lane(), size = team.size();
  float top = -3.4e38f, total = 0;
  long i = 0;
  for (; i + block * size <= classes; i += block * size) {
    float values[block];
    float higher = top;
    for (int k = 0; k < block; ++k) values[k] = load(x, i + k * size + lane);
    for (int k = 0; k < block; ++k) higher = sycl::fmax(higher, values[k]);
    total *= fast_exp(top - higher);
    for (int k = 0; k < block; ++k) total += fast_exp(values[k] - higher);
    top = higher;
  }
  for (i += lane; i < classes; i += size) {
    const float value = load(x, i), higher = sycl::fmax(top, value);
    total = total * fast_exp(top - higher) + fast_exp(value - higher);
    top = higher;
  }
  const float highest = team_max(team, top);
  return {highest, team_sum(team, total * fast_exp(top - highest))};
}

template <class Team, class T>
inline void cross_entropy(const T* logits, const int* targets, float weight, float* losses, T* diff, long rows, long classes, long chunk) {
  for_team_rows<Team>(rows, chunk, [=](const Team& team, long row) {
    const T* x = logits + row * classes;
    T* out = diff + row * classes;
    const long target = targets[row];
    const bool leader = team.lane() == 0;
    if (target < 0 || target >= classes) {
      if (leader) losses[row] = 0.0f;
      if (diff) for_width(team, classes, [=](long i) { store(out, i, 0.0f); });
      return;
    }
    const LogSum sum = log_sum(team, x, classes);
    const float hit = load(x, target);
    if (leader) losses[row] = sycl::log(sum.total) - (hit - sum.top);
    if (!diff) return;
    sycl::group_barrier(team.group);  // diff may be logits: all have read the target's logit before it is overwritten
    const float factor = weight / sum.total;
    for_width(team, classes, [=](long i) { store(out, i, factor * fast_exp(load(x, i) - sum.top)); });
    sycl::group_barrier(team.group);
    if (leader) store(out, target, weight * (fast_exp(hit - sum.top) / sum.total - 1.0f));
  });
}

// One rank's classes [first, first + classes) of a row: largest logit, Σ exp(logit - largest), the target's logit where it is among them.
template <class Team, class T>
inline void cross_entropy_part(const T* logits, const int* targets, float* mine, long rows, long classes, long first, long chunk) {
  for_team_rows<Team>(rows, chunk, [=](const Team& team, long row) {
    const T* x = logits + row * classes;
    const LogSum sum = log_sum(team, x, classes);
    const long target = targets[row] - first;
    if (team.lane() != 0) return;
    mine[row] = sum.top;
    mine[rows + row] = sum.total;
    mine[2 * rows + row] = target >= 0 && target < classes ? load(x, target) : 0.0f;
  });
}

// What all ranks found, put together in their order: the same loss on each of them.
template <class Team, class T>
inline void cross_entropy_join(const T* logits, const int* targets, const float* all, int ranks, float weight, float* losses, T* diff,
                               long rows, long classes, long first, long all_classes, long chunk) {
  for_team_rows<Team>(rows, chunk, [=](const Team& team, long row) {
    const T* x = logits + row * classes;
    T* out = diff + row * classes;
    const long target = targets[row];
    const bool leader = team.lane() == 0;
    if (target < 0 || target >= all_classes) {
      if (leader) losses[row] = 0.0f;
      if (diff) for_width(team, classes, [=](long i) { store(out, i, 0.0f); });
      return;
    }
    float top = -3.4e38f, total = 0, hit = 0;
    for (int r = 0; r < ranks; ++r) top = sycl::fmax(top, all[3 * r * rows + row]);
    for (int r = 0; r < ranks; ++r) {
      const float* its = all + 3 * r * rows + row;
      total += its[rows] * fast_exp(its[0] - top);
      hit += its[2 * rows];
    }
    if (leader) losses[row] = sycl::log(total) - (hit - top);
    if (!diff) return;
    const float factor = weight / total;
    for_width(team, classes, [=](long i) { store(out, i, factor * fast_exp(load(x, i) - top)); });
    sycl::group_barrier(team.group);
    const long here = target - first;
    if (leader && here >= 0 && here < classes) store(out, here, weight * (fast_exp(hit - top) / total - 1.0f));
  });
}

#define STAMP(SUFFIX, T, TEAM)                                                                                                         \
  KERNEL_1D cross_entropy_part_##SUFFIX(const T* logits, const int* targets, float* mine, long rows, long classes, long first,         \
                                        long chunk) {                                                                                  \
    cross_entropy_part<TEAM>(logits, targets, mine, rows, classes, first, chunk);                                                      \
  }                                                                                                                                    \
  KERNEL_1D cross_entropy_join_##SUFFIX(const T* logits, const int* targets, const float* all, int ranks, float weight, float* losses, \
                                        T* diff, long rows, long classes, long first, long all_classes, long chunk) {                  \
    cross_entropy_join<TEAM>(logits, targets, all, ranks, weight, losses, diff, rows, classes, first, all_classes, chunk);             \
  }                                                                                                                                    \
  KERNEL_1D cross_entropy_##SUFFIX(const T* logits, const int* targets, float weight, float* losses, T* diff, long rows, long classes, \
                                   long chunk) {                                                                                       \
    cross_entropy<TEAM>(logits, targets, weight, losses, diff, rows, classes, chunk);                                                  \
  }
FOR_EACH_TYPE_AND_TEAM(STAMP)
#undef STAMP

#define STAMP(SUFFIX, T)                                                                                                              \
  KERNEL_1D embedding_##SUFFIX(const int* ids, const T* tokens, const T* positions, const int* first, T* dst, long rows, long length, \
                               long width, long vocabulary, long table_rows, long first_token, long chunk) {                          \
    for_rows(rows, chunk, [=](long row) {                                                                                             \
      const long id = ids[row] - first_token;                                                                                         \
      const long position = row % length + (first ? first[row / length] : 0);                                                         \
      const T* token = id >= 0 && id < vocabulary ? tokens + id * width : nullptr;                                                    \
      const T* place = positions && position >= 0 && position < table_rows ? positions + position * width : nullptr;                  \
      T* out = dst + row * width;                                                                                                     \
      if (token && place)                                                                                                             \
        for_range(0, width, [=](long i) { store(out, i, load(token, i) + load(place, i)); });                                         \
      else if (token)                                                                                                                 \
        for_range(0, width, [=](long i) { out[i] = token[i]; });                                                                      \
      else                                                                                                                            \
        for_range(0, width, [=](long i) { store(out, i, 0.0f); });                                                                    \
    });                                                                                                                               \
  }                                                                                                                                   \
  KERNEL_1D embedding_backward_tokens_##SUFFIX(const int* ids, const int* next, const T* diff_dst, float* diff_tokens, long rows,     \
                                               long width, long first_token, long chunk) {                                            \
    for_rows(rows, chunk, [=](long row) {                                                                                             \
      if (next[row] < 0) return;                                                                                                      \
      float* sums = diff_tokens + (ids[row] - first_token) * width;                                                                   \
      for_range(0, width, [=](long i) {                                                                                               \
        float sum = sums[i];                                                                                                          \
        for (long at = row; at < rows; at = next[at] & 0x7fffffff) sum += load(diff_dst, at * width + i);                             \
        sums[i] = sum;                                                                                                                \
      });                                                                                                                             \
    });                                                                                                                               \
  }                                                                                                                                   \
  KERNEL_1D embedding_backward_positions_##SUFFIX(const T* diff_dst, float* diff_positions, long batch, long length, long width,      \
                                                  int accumulate, long chunk) {                                                       \
    for_rows(length, chunk, [=](long t) {                                                                                             \
      float* sums = diff_positions + t * width;                                                                                       \
      for_range(0, width, [=](long i) {                                                                                               \
        float sum = accumulate ? sums[i] : 0.0f;                                                                                      \
        for (long b = 0; b < batch; ++b) sum += load(diff_dst, (b * length + t) * width + i);                                         \
        sums[i] = sum;                                                                                                                \
      });                                                                                                                             \
    });                                                                                                                               \
  }
FOR_EACH_TYPE(STAMP)
#undef STAMP

// Threads the rows of equal ids in ascending order, so that each table row is summed by one work-group in a fixed order: next[row] is
// the next row with the same id, or `rows` at the end; with the sign bit set on all but the first. Ids outside of the table, and padding:
// not first.
KERNEL_1D embedding_chain(const int* ids, int* next, long rows, long first_token, long vocabulary, long padding) {
  const long row = item_1d().get_global_linear_id();
  const long mine = lesser(row, rows - 1);
  const int id = ids[mine];
  int after = static_cast<int>(rows);
  bool first = id >= first_token && id < first_token + vocabulary && id != padding;
  // Downwards, so that the nearest one after this row is what stays.
  for (long other = rows - 1; other >= 0; --other) {
    const bool same = ids[other] == id;
    after = same && other > mine ? static_cast<int>(other) : after;
    first = first && !(same && other < mine);
  }
  if (row < rows) next[row] = first ? after : static_cast<int>(static_cast<unsigned>(after) | 0x80000000u);
}
