// Decoding on CPUs: steps that follow one another in one launch. Linear layers over few rows: dst = epilogue(norm(src) · Wᵀ), W [out,in] in
// f32, bf16, int8 with scales or 4 bits. A work-item is a thread here and has vectors of its own: the compiler's vectors of work-items cost
// three times as much for narrow weights.
#pragma once

#include "few_rows_attention.hpp"

// Rows of narrow weights end before the processor has seen that it reads them in order. What comes next is asked for here, into the second
// level of the caches. SYCL's own prefetch is a call, which costs more than it gains.
inline void prefetch_line(const char* p) {
#ifdef PPENGINE_X86
  asm volatile("prefetcht1 (%0)" : : "r"(p));
#endif
}
constexpr int line_bytes = 64;
constexpr long prefetched_bytes = 4096;  // ahead of what is read, at least

template <class W>
constexpr bool is_int4 = std::is_same_v<W, int4_bits>;
template <class W>
inline long row_bytes(long in) {
  return is_int4<W> ? int4_row_bytes(in) : in * static_cast<long>(sizeof(W));
}

struct RowNorm {
  float mean, rstd;
};
inline RowNorm row_norm(const float* p, long in, int centered, float epsilon) {
  const Values row{p};
  const float m = centered ? sum_over(in, row) / in : 0.0f;
  return {m, 1.0f / sycl::sqrt(sum_over(in,
                                        [=](long i, auto kind) {
                                          const auto d = row(i, kind) - m;
                                          return d * d;
                                        }) /
                                   in +
                               epsilon)};
}

// Computes as few_rows() does, so that a row is the same whichever of them has done it.
inline void normalize(const NormStep& step, long row) {
  const float* const x = step.src + row * step.in;
  float* const dst = step.dst + row * step.in;
  const RowNorm norm = row_norm(x, step.in, step.centered, step.epsilon);
  const float* const shift = step.beta ? step.beta : step.gamma;
  const float shifted = step.beta ? 1.0f : 0.0f;
  long i = 0;
  for (; i + few_lanes <= step.in; i += few_lanes) {
    const Lanes g = load_lanes(step.gamma + i), b = load_lanes(shift + i) * shifted;
    *reinterpret_cast<LanesInMemory*>(dst + i) = (load_lanes(x + i) - norm.mean) * norm.rstd * g + b;
  }
  for (; i < step.in; ++i) dst[i] = (x[i] - norm.mean) * norm.rstd * step.gamma[i] + shift[i] * shifted;
}

// One chunk of a step: `Outs` outputs at a time for `Rows` rows of src (those from `rows` on are computed again and not stored, so that the
// order of additions is the same for any number of rows); scales are per output and `group` inputs.
template <class W, int Rows, int Outs, bool Norm>
inline void few_rows(const LinearStep& step, long rows, long begin) {
  constexpr bool scaled = sizeof(W) == 1 && !is_int4<W>;
  constexpr int block = few_lanes;  // outputs between epilogues
  const long in = step.in, out = step.out, group = step.group, end = lesser(begin + step.chunk, out);
  const W* const weight = static_cast<const W*>(step.weight);
  const float *const gamma = step.gamma, *const beta = step.beta;
  const float* x[Rows];
  float mean[Rows], rstd[Rows];
  unroll<Rows>([&](auto r) {
    x[r] = step.src + (r < rows ? r : rows - 1) * in;
    if constexpr (Norm) {
      const RowNorm norm = row_norm(x[r], in, step.centered, step.epsilon);
      mean[r] = norm.mean, rstd[r] = norm.rstd;
    }
  });
  const float* const shift = beta ? beta : gamma;  // no branch in the loop
  const float shifted = beta ? 1.0f : 0.0f;
  const long groups = sizeof(W) == 1 ? (in + group - 1) / group : 1, in_row = row_bytes<W>(in) / static_cast<long>(sizeof(W));
  // Rows are read `Outs` together; the lines that hold the next ones are asked for in their order.
  const long together = Outs * row_bytes<W>(in), ahead = (prefetched_bytes + together - 1) / together * together;
  for (long o = begin; o < end; o += block) {
    float sums[Rows][block];
    for (int quad = 0; quad < block && o + quad < end; quad += Outs) {
      const W* w[Outs];
      const float* scale[Outs];
      Lanes total[Outs * Rows];
      float rest[Outs * Rows];
      unroll<Outs>([&](auto k) {
        const long at = o + quad + k < out ? o + quad + k : out - 1;
        w[k] = weight + at * in_row;
        scale[k] = step.scales + at * groups;
      });
      unroll<Outs * Rows>([&](auto k) { total[k] = 0, rest[k] = 0; });
      const char* const next = reinterpret_cast<const char*>(w[0]) + ahead;
      if constexpr (is_int4<W>) {
        const auto word = [&](int k, long part) { return reinterpret_cast<const unsigned*>(scale[k])[part]; };
        const auto value_at = [&](auto r, long i, auto load) {
          auto value = load(x[r] + i);
          if constexpr (Norm) value = (value - mean[r]) * rstd[r] * load(gamma + i) + load(shift + i) * shifted;
          return value;
        };
        long i = 0;
        for (long part = 0, left = group; i + int4_block <= in; i += int4_block) {
          prefetch_line(next + Outs * i / 2);
          unroll<2>([&](auto half) {
            const long from = i + half * few_lanes;
            Lanes value[Rows];
            unroll<Rows>([&](auto r) { value[r] = value_at(r, from, [](const float* p) { return load_lanes(p); }); });
            unroll<Outs>([&](auto k) {
              const Lanes weights = load_half_block(w[k] + i / 2, half == 1, word(k, part));
              unroll<Rows>([&](auto r) { total[k * Rows + r] += weights * value[r]; });
            });
          });
          if ((left -= int4_block) == 0) ++part, left = group;
        }
        for (; i < in; ++i)
          unroll<Rows>([&](auto r) {
            const float value = value_at(r, i, [](const float* p) { return *p; });
            unroll<Outs>(
                [&](auto k) { rest[k * Rows + r] += int4_value(w[k], reinterpret_cast<const unsigned*>(scale[k]), i, group) * value; });
          });
      }
      for (long part = 0; part < groups && !is_int4<W>; ++part) {
        const long last = scaled ? lesser((part + 1) * group, in) : in;
        Lanes sum[Outs * Rows];
        float tail[Outs * Rows];
        unroll<Outs * Rows>([&](auto k) { sum[k] = 0, tail[k] = 0; });
        long i = scaled ? part * group : 0;
        for (; i + few_lanes <= last; i += few_lanes) {
          constexpr int bytes = Outs * few_lanes * sizeof(W);
          unroll<(bytes + line_bytes - 1) / line_bytes>(
              [&](auto k) { prefetch_line(next + Outs * i * static_cast<long>(sizeof(W)) + k * line_bytes); });
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
    const long count = lesser(end - o, static_cast<long>(block));
    for (long r = 0; r < rows; ++r) {
      const long at = r * out + o;
      for (long k = 0; k < count; ++k) {
        float value = sums[r][k] + (step.bias ? step.bias[o + k] : 0.0f);
        value = step.gate ? value * activate(step.activation, step.gate[at + k]) : activate(step.activation, value);
        step.dst[at + k] = value + (step.residual ? step.residual[at + k] : 0.0f);
      }
    }
  }
}

using Counter = sycl::atomic_ref<int, sycl::memory_order::acq_rel, sycl::memory_scope::device, sycl::access::address_space::global_space>;

template <class W, int Rows, int Outs>
inline void run_chunk(const Step& step, long rows, long chunk) {
  switch (step.kind) {
    case StepKind::norm:
      return normalize(step.norm, chunk);
    case StepKind::attention:
      return attend(step.attention, chunk);
    case StepKind::rotary:
      return rotate(step.rotary, chunk);
    case StepKind::linear:
      if (step.linear.gamma)
        few_rows<W, Rows, Outs, true>(step.linear, rows, chunk * step.linear.chunk);
      else
        few_rows<W, Rows, Outs, false>(step.linear, rows, chunk * step.linear.chunk);
  }
}

// The first weights of a chunk.
template <class W, int Outs>
inline void prefetch_weights(const LinearStep& step, long chunk) {
  const char* const first = static_cast<const char*>(step.weight) + chunk * step.chunk * row_bytes<W>(step.in);
  unroll<Outs>([&](auto k) {
    for (long at = 0; at < prefetched_bytes / Outs; at += line_bytes) prefetch_line(first + k * row_bytes<W>(step.in) + at);
  });
}

// Work-groups take chunks until there are none, and wait for the chunks of the step before that others have taken: whoever has taken one is
// running, so nobody waits for a work-group that has not begun.
template <class W, int Rows, int Outs>
inline void few_rows_steps(const Steps& steps, StepProgress* progress, long rows) {
  for (int s = 0; s < steps.count; ++s) {
    const Step& step = steps.step[s];
    int mine = Counter(progress->claimed[s]).fetch_add(1);
    if (mine < step.chunks && step.kind == StepKind::linear) prefetch_weights<W, Outs>(step.linear, mine);
    while (s > 0 && Counter(progress->finished[s - 1]).load() < steps.step[s - 1].chunks) {
    }
    for (; mine < step.chunks; mine = Counter(progress->claimed[s]).fetch_add(1)) {
      run_chunk<W, Rows, Outs>(step, rows, mine);
      Counter(progress->finished[s]).fetch_add(1);
    }
  }
  if (Counter(progress->left).fetch_add(1) + 1 < static_cast<int>(item_1d().get_group_range(0))) return;
  for (int s = 0; s < steps.count; ++s) progress->claimed[s] = progress->finished[s] = 0;
  progress->left = 0;
}

// few_rows_f32_1
#define FEW_ROWS_STEPS(SUFFIX, W, ROWS, OUTS)                                                   \
  KERNEL_1D few_rows_##SUFFIX##_##ROWS(const Steps* steps, StepProgress* progress, long rows) { \
    few_rows_steps<W, ROWS, OUTS>(*steps, progress, rows);                                      \
  }
