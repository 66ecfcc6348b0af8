// Linear layers over few rows (decoding) on CPUs: dst = epilogue(norm(src) · Wᵀ), W [out,in] in f32, bf16 or int8 with scales. A work-item
// is a thread here and has vectors of its own: the compiler's vectors of work-items cost three times as much for narrow weights.
#pragma once

#include "few_rows_shared.hpp"

constexpr int few_lanes = 16;
typedef float Lanes __attribute__((ext_vector_type(16)));
typedef float Lanes8 __attribute__((ext_vector_type(8)));
typedef float Lanes4 __attribute__((ext_vector_type(4)));
typedef unsigned UnsignedLanes __attribute__((ext_vector_type(16)));
typedef float LanesInMemory __attribute__((ext_vector_type(16), aligned(4)));
typedef unsigned short Bf16InMemory __attribute__((ext_vector_type(16), aligned(2)));
typedef signed char Int8InMemory __attribute__((ext_vector_type(16), aligned(1)));

inline Lanes load_lanes(const float* p) { return *reinterpret_cast<const LanesInMemory*>(p); }
inline Lanes load_lanes(const bf16_bits* p) {
  return __builtin_bit_cast(Lanes, __builtin_convertvector(*reinterpret_cast<const Bf16InMemory*>(p), UnsignedLanes) << 16);
}
inline Lanes load_lanes(const int8_bits* p) { return __builtin_convertvector(*reinterpret_cast<const Int8InMemory*>(p), Lanes); }
inline float load_one(const float* p) { return *p; }
inline float load_one(const bf16_bits* p) { return load(p, 0); }
inline float load_one(const int8_bits* p) { return static_cast<float>(*p); }
inline float sum_of(Lanes v) {
  const Lanes8 a = v.lo + v.hi;
  const Lanes4 b = a.lo + a.hi;
  return (b.x + b.z) + (b.y + b.w);
}

template <class Term>
inline float sum_over(long width, const Term& term) {
  Lanes sum = 0;
  long i = 0;
  for (; i + few_lanes <= width; i += few_lanes) sum += term(i, Lanes());
  float rest = 0;
  for (; i < width; ++i) rest += term(i, float());
  return sum_of(sum) + rest;
}
struct Values {  // of a row, as many as the second argument has
  const float* p;
  Lanes operator()(long i, Lanes) const { return load_lanes(p + i); }
  float operator()(long i, float) const { return p[i]; }
};

// `Outs` outputs at a time for `Rows` rows of src (those from `rows` on are computed again and not stored, so that the order of additions
// is the same for any number of rows); scales are per output and `group` inputs.
template <class W, int Rows, int Outs, bool Norm>
inline void few_rows(const float* src, const W* weight, const float* scales, const float* bias, const float* residual, const float* gate,
                     const float* gamma, const float* beta, float* dst, long rows, long in, long out, long group, float epsilon,
                     int centered, int activation, long chunk) {
  constexpr bool scaled = sizeof(W) == 1;
  constexpr int block = few_lanes;  // outputs between epilogues
  const float* x[Rows];
  float mean[Rows], rstd[Rows];
  unroll<Rows>([&](auto r) {
    const Values row{src + (r < rows ? r : rows - 1) * in};
    x[r] = row.p;
    if constexpr (Norm) {
      const float m = mean[r] = centered ? sum_over(in, row) / in : 0.0f;
      rstd[r] = 1.0f / sycl::sqrt(sum_over(in,
                                           [=](long i, auto kind) {
                                             const auto d = row(i, kind) - m;
                                             return d * d;
                                           }) /
                                      in +
                                  epsilon);
    }
  });
  const float* const shift = beta ? beta : gamma;  // no branch in the loop
  const float shifted = beta ? 1.0f : 0.0f;
  const long groups = scaled ? (in + group - 1) / group : 1;
  const long begin = static_cast<long>(item_1d().get_group(0)) * chunk, end = sycl::min(begin + chunk, out);
  for (long o = begin; o < end; o += block) {
    float sums[Rows][block];
    for (int quad = 0; quad < block && o + quad < end; quad += Outs) {
      const W* w[Outs];
      const float* scale[Outs];
      Lanes total[Outs * Rows];
      float rest[Outs * Rows];
      unroll<Outs>([&](auto k) {
        const long at = o + quad + k < out ? o + quad + k : out - 1;
        w[k] = weight + at * in;
        scale[k] = scales + at * groups;
      });
      unroll<Outs * Rows>([&](auto k) { total[k] = 0, rest[k] = 0; });
      for (long part = 0; part < groups; ++part) {
        const long last = scaled ? sycl::min((part + 1) * group, in) : in;
        Lanes sum[Outs * Rows];
        float tail[Outs * Rows];
        unroll<Outs * Rows>([&](auto k) { sum[k] = 0, tail[k] = 0; });
        long i = scaled ? part * group : 0;
        for (; i + few_lanes <= last; i += few_lanes) {
          Lanes weights[Outs], g, b;
          unroll<Outs>([&](auto k) { weights[k] = load_lanes(w[k] + i); });
          if constexpr (Norm) g = load_lanes(gamma + i), b = load_lanes(shift + i) * shifted;
          unroll<Rows>([&](auto r) {
            Lanes value = load_lanes(x[r] + i);
            if constexpr (Norm) value = (value - mean[r]) * rstd[r] * g + b;
            unroll<Outs>([&](auto k) { sum[k * Rows + r] += weights[k] * value; });
          });
        }
        for (; i < last; ++i)
          unroll<Rows>([&](auto r) {
            float value = x[r][i];
            if constexpr (Norm) value = (value - mean[r]) * rstd[r] * gamma[i] + shift[i] * shifted;
            unroll<Outs>([&](auto k) { tail[k * Rows + r] += load_one(w[k] + i) * value; });
          });
        unroll<Outs * Rows>([&](auto k) {
          const float factor = scaled ? scale[k / Rows][part] : 1.0f;
          total[k] += sum[k] * factor;
          rest[k] += tail[k] * factor;
        });
      }
      unroll<Outs * Rows>([&](auto k) { sums[k % Rows][quad + k / Rows] = sum_of(total[k]) + rest[k]; });
    }
    const long count = sycl::min(end - o, static_cast<long>(block));
    for (long r = 0; r < rows; ++r) {
      const long at = r * out + o;
      for (long k = 0; k < count; ++k) {
        float value = sums[r][k] + (bias ? bias[o + k] : 0.0f);
        value = gate ? value * activate(activation, gate[at + k]) : activate(activation, value);
        dst[at + k] = value + (residual ? residual[at + k] : 0.0f);
      }
    }
  }
}
