// Weights that are stored narrower than they are computed with: back to f32, rows of an embedding; and a plain read of memory.
#include "few_rows_shared.hpp"
#include "rows.hpp"

inline float load(const signed char* p, long i) { return static_cast<float>(p[i]); }

// dst[out,in] in f32.
KERNEL_1D widen_bf16(const bf16_bits* weight, const float*, float* dst, long out, long in, long, long chunk) {
  for_chunk(out * in, chunk, [=](long i) { dst[i] = load(weight, i); });
}
KERNEL_1D widen_int8(const signed char* weight, const float* scales, float* dst, long out, long in, long group, long chunk) {
  const long groups = (in + group - 1) / group;
  for_rows(out, chunk, [=](long row) {
    for (long part = 0; part < groups; ++part) {
      const float scale = scales[row * groups + part];
      for_range(part * group, sycl::min((part + 1) * group, in),
                [=](long i) { dst[row * in + i] = scale * static_cast<float>(weight[row * in + i]); });
    }
  });
}

KERNEL_1D widen_int4(const int4_bits* weight, const float* words, float* dst, long out, long in, long group, long chunk) {
  const long groups = (in + group - 1) / group, row_bytes = int4_row_bytes(in);
  for_rows(out, chunk, [=](long row) {
    for_range(0, in, [=](long i) {
      dst[row * in + i] = int4_value(weight + row * row_bytes, reinterpret_cast<const unsigned*>(words) + row * groups, i, group);
    });
  });
}

// dst[tokens,width] = table[ids - begin] (+ positions[first + t]); ids outside of the table give zeros.
template <class W>
inline void gather(const int* ids, const W* table, const float* scales, const float* positions, const int* first, float* dst, long tokens,
                   long length, long width, long begin, long vocabulary, long group, long chunk) {
  const long groups = (width + group - 1) / group;
  for_rows(tokens, chunk, [=](long token) {
    const long id = ids[token] - begin;
    const bool inside = id >= 0 && id < vocabulary;
    const long position = (first ? first[token / length] : 0) + token % length;
    for_range(0, width, [=](long i) {
      float value = 0;
      if (inside) {
        if constexpr (std::is_same_v<W, int4_bits>) {
          value = int4_value(table + id * int4_row_bytes(width), reinterpret_cast<const unsigned*>(scales) + id * groups, i, group);
        } else {
          value = load(table, id * width + i);
          if (sizeof(W) == 1) value *= scales[id * groups + i / group];
        }
        if (positions) value += positions[position * width + i];
      }
      dst[token * width + i] = value;
    });
  });
}
KERNEL_1D gather_bf16(const int* ids, const bf16_bits* table, const float* scales, const float* positions, const int* first, float* dst,
                      long tokens, long length, long width, long begin, long vocabulary, long group, long chunk) {
  gather(ids, table, scales, positions, first, dst, tokens, length, width, begin, vocabulary, group, chunk);
}
KERNEL_1D gather_int8(const int* ids, const signed char* table, const float* scales, const float* positions, const int* first, float* dst,
                      long tokens, long length, long width, long begin, long vocabulary, long group, long chunk) {
  gather(ids, table, scales, positions, first, dst, tokens, length, width, begin, vocabulary, group, chunk);
}

KERNEL_1D gather_int4(const int* ids, const int4_bits* table, const float* scales, const float* positions, const int* first, float* dst,
                      long tokens, long length, long width, long begin, long vocabulary, long group, long chunk) {
  gather(ids, table, scales, positions, first, dst, tokens, length, width, begin, vocabulary, group, chunk);
}

// Reads memory and does as little as possible with it: what bandwidth is measured with.
KERNEL_1D read_all(const float* src, float* sums, long count, long chunk) {
  const SubGroupTeam team;
  const long begin = static_cast<long>(item_1d().get_group(0)) * chunk + team.index() * (chunk / team.teams());
  const long part = chunk / team.teams();
  const float sum = row_sum(team, sycl::max(0L, sycl::min(part, count - begin)), [=](long i) { return src[begin + i]; });
  if (team.lane() == 0) sums[item_1d().get_group(0) * team.teams() + team.index()] = sum;
}
