// Linear layers over few rows (decoding) on GPUs: dst = epilogue(norm(src) · Wᵀ), W [out,in] in f32, bf16 or int8 with scales. Bound by the
// reading of W, so each element is read once, front to back, several rows of W side by side.
#pragma once

#include "few_rows_shared.hpp"
#include "rows.hpp"

// V neighbouring weights of one work-item. V = 1 makes plain vector loads of a CPU's lanes; V = 4 wide, coalesced loads on GPUs.
template <int V>
struct Pack {
  float value[V];
};
inline Pack<1> load_pack(const float* p, long i, Pack<1>) { return {{p[i]}}; }
inline Pack<1> load_pack(const bf16_bits* p, long i, Pack<1>) { return {{load(p, i)}}; }
inline Pack<1> load_pack(const int8_bits* p, long i, Pack<1>) { return {{static_cast<float>(p[i])}}; }
inline Pack<4> load_pack(const float* p, long i, Pack<4>) {
  const sycl::float4 four = *reinterpret_cast<const sycl::float4*>(p + i);
  return {{four[0], four[1], four[2], four[3]}};
}
inline Pack<4> load_pack(const bf16_bits* p, long i, Pack<4>) {
  const sycl::uint2 two = *reinterpret_cast<const sycl::uint2*>(p + i);
  const unsigned a = two[0], b = two[1];
  return {{sycl::bit_cast<float>(a << 16), sycl::bit_cast<float>(a & 0xffff0000u), sycl::bit_cast<float>(b << 16),
           sycl::bit_cast<float>(b & 0xffff0000u)}};
}
inline Pack<4> load_pack(const int8_bits* p, long i, Pack<4>) {
  const int four = *reinterpret_cast<const int*>(p + i);
  return {{static_cast<float>(four << 24 >> 24), static_cast<float>(four << 16 >> 24), static_cast<float>(four << 8 >> 24),
           static_cast<float>(four >> 24)}};
}

// A norm in front: x̂ = (x - mean) · rstd · gamma + beta.
struct RowNorm {
  float mean = 0, rstd = 1;
};
template <class Team>
inline RowNorm row_norm(const Team& team, const float* x, long width, float epsilon, bool centered) {
  RowNorm norm;
  if (centered) norm.mean = row_sum(team, width, [=](long i) { return x[i]; }) / width;
  const float mean = norm.mean;
  const float variance = row_sum(team, width, [=](long i) { return (x[i] - mean) * (x[i] - mean); }) / width;
  norm.rstd = 1.0f / sycl::sqrt(variance + epsilon);
  return norm;
}

// A sub-group has `Outs` outputs at a time, for `Rows` rows of src (those from `rows` on are computed again and not stored, so that the
// order of additions is the same for any number of rows). Scales are per output and `group` inputs; group >= in without scales.
template <class W, int Rows, int Outs, int V, bool Norm>
inline void few_rows(const float* src, const W* weight, const float* scales, const float* bias, const float* residual, const float* gate,
                     const float* gamma, const float* beta, float* dst, long rows, long in, long out, long group, float epsilon,
                     int centered, int activation, long chunk) {
  const SubGroupTeam team;
  const long lane = team.lane(), size = team.size(), step = size * V;
  const float* x[Rows];
  float mean[Rows], rstd[Rows];
  unroll<Rows>([&](auto r) {
    x[r] = src + (r < rows ? r : rows - 1) * in;
    if constexpr (Norm) {
      const RowNorm norm = row_norm(team, x[r], in, epsilon, centered != 0);
      mean[r] = norm.mean;
      rstd[r] = norm.rstd;
    }
  });
  const float* const shift = beta ? beta : gamma;  // no branch in the loop
  const float shifted = beta ? 1.0f : 0.0f;
  const bool scaled = sizeof(W) == 1;
  const long groups = scaled ? (in + group - 1) / group : 1;
  const long begin = static_cast<long>(item_1d().get_group(0)) * chunk, end = lesser(begin + chunk, out);
  for (long o = begin + team.index() * Outs; o < end; o += team.teams() * Outs) {
    const W* w[Outs];
    float total[Outs * Rows];
    unroll<Outs>([&](auto k) { w[k] = weight + (o + k < out ? o + k : out - 1) * in; });
    unroll<Outs * Rows>([&](auto k) { total[k] = 0; });
    const auto add = [&](float* sum, long i) __attribute__((always_inline)) {
      Pack<V> weights[Outs], g, b;
      unroll<Outs>([&](auto k) { weights[k] = load_pack(w[k], i, Pack<V>()); });
      if constexpr (Norm) {
        g = load_pack(gamma, i, Pack<V>());
        b = load_pack(shift, i, Pack<V>());
      }
      unroll<Rows>([&](auto r) {
        Pack<V> value = load_pack(x[r], i, Pack<V>());
        if constexpr (Norm)
          unroll<V>([&](auto v) { value.value[v] = sycl::fma((value.value[v] - mean[r]) * rstd[r], g.value[v], b.value[v] * shifted); });
        unroll<Outs>([&](auto k) {
          unroll<V>([&](auto v) { sum[k * Rows + r] = sycl::fma(weights[k].value[v], value.value[v], sum[k * Rows + r]); });
        });
      });
    };
    for (long part = 0; part < groups; ++part) {
      const long first = scaled ? part * group : 0, last = scaled ? lesser(first + group, in) : in;
      float even[Outs * Rows], odd[Outs * Rows];
      unroll<Outs * Rows>([&](auto k) { even[k] = odd[k] = 0; });
      long i = first;
      for (; i + 2 * step <= last; i += 2 * step) {
        add(even, i + lane * V);
        add(odd, i + step + lane * V);
      }
      for (; i + step <= last; i += step) add(even, i + lane * V);
      if (i + lane * V < last) add(odd, i + lane * V);  // with V > 1, in and group are multiples of it
      unroll<Outs>([&](auto k) {
        const float factor = scaled ? scales[(o + k < out ? o + k : out - 1) * groups + part] : 1.0f;
        unroll<Rows>([&](auto r) { total[k * Rows + r] = sycl::fma(even[k * Rows + r] + odd[k * Rows + r], factor, total[k * Rows + r]); });
      });
    }
    unroll<Rows>([&](auto r) {
      float mine = 0;  // the first `Outs` lanes have an output each
      unroll<Outs>([&](auto k) {
        const float sum = team_sum(team, total[k * Rows + r]);
        mine = lane == k ? sum : mine;
      });
      const long at = o + lane;
      if (lane < Outs && at < end && r < rows) {
        if (bias) mine += bias[at];
        mine = gate ? mine * activate(activation, gate[r * out + at]) : activate(activation, mine);
        if (residual) mine += residual[r * out + at];
        dst[r * out + at] = mine;
      }
    });
  }
}

// few_rows_f32_1, and few_rows_f32_1_norm with a norm in front.
#define FEW_ROWS_NAMED(NAME, W, ROWS, ...)                                                                                                 \
  KERNEL_1D NAME(const float* src, const W* weight, const float* scales, const float* bias, const float* residual, const float* gate,      \
                 const float* gamma, const float* beta, float* dst, long rows, long in, long out, long group, float epsilon, int centered, \
                 int activation, long chunk) {                                                                                             \
    few_rows<W, ROWS, __VA_ARGS__>(src, weight, scales, bias, residual, gate, gamma, beta, dst, rows, in, out, group, epsilon, centered,   \
                                   activation, chunk);                                                                                     \
  }
#define FEW_ROWS(SUFFIX, W, ROWS, ...)                                    \
  FEW_ROWS_NAMED(few_rows_##SUFFIX##_##ROWS, W, ROWS, __VA_ARGS__, false) \
  FEW_ROWS_NAMED(few_rows_##SUFFIX##_##ROWS##_norm, W, ROWS, __VA_ARGS__, true)

#define FEW_ROWS_OF(SUFFIX, W, V) \
  FEW_ROWS(SUFFIX, W, 1, 2, V)    \
  FEW_ROWS(SUFFIX, W, 2, 2, V)    \
  FEW_ROWS(SUFFIX, W, 4, 2, V)    \
  FEW_ROWS(SUFFIX, W, 8, 2, V)
#define FEW_ROWS_ALL(V)           \
  FEW_ROWS_OF(f32, float, V)      \
  FEW_ROWS_OF(bf16, bf16_bits, V) \
  FEW_ROWS_OF(int8, int8_bits, V)
