// Loops of attention.
#include <ppengine/ops/cpu/loops_attention.hpp>

#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_attention.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const AttentionLoops* find_attention_loops() { return nullptr; }
#else
namespace {

constexpr int unroll = 2;            // steps of a tile: with more, g++ 12 moves sums between registers, 9 % slower with AVX2
constexpr int rows_per_pointer = 3;  // one register holds the distance of rows: x86 addresses reach one and two of them
static_assert(tile_height % rows_per_pointer == 0);

std::int64_t lesser(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

// The tile at column n of c: one or two registers wide.
template <int Height, int Vectors, bool Transposed>
PPENGINE_INLINE void multiply_tile(const RowsByPanels& of, const float* line, std::int64_t n) {
  V sums[Height][Vectors];
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) sums[i][j] = zero();

  // Pointers of which g++ does not know that they belong together: else it takes one, and offsets for every row and step that it reads
  // from the stack, which takes as long as the values themselves.
  constexpr int pointers = Transposed ? 1 : (Height + rows_per_pointer - 1) / rows_per_pointer;
  const float* a[pointers];
  std::int64_t row_a = of.row_a;
  asm("" : "+r"(row_a));
#pragma GCC unroll 4
  for (int i = 0; i < pointers; ++i) {
    a[i] = of.a + i * rows_per_pointer * of.row_a;
    asm("" : "+r"(a[i]));
  }
  const auto add_step = [&](int step) PPENGINE_INLINED {
    V column[Vectors];
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) column[j] = hn::Load(f32, line + step * panel_width + j * lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      const float* const from = Transposed ? a[0] + i : a[i / rows_per_pointer % pointers] + i % rows_per_pointer * row_a + step;
      const V value = all(*from);
#pragma GCC unroll 2
      for (int j = 0; j < Vectors; ++j) sums[i][j] = fma(value, column[j], sums[i][j]);
    }
    if (Transposed) a[0] += row_a;
  };
  const auto advance = [&](int steps) PPENGINE_INLINED {
    line += steps * panel_width;
    if (Transposed) return;
#pragma GCC unroll 4
    for (int i = 0; i < pointers; ++i) a[i] += steps;
  };
  std::int64_t left = of.depth;
  for (; left >= unroll; left -= unroll) {
#pragma GCC unroll 4
    for (int step = 0; step < unroll; ++step) add_step(step);
    advance(unroll);
  }
  for (; left > 0; --left) {
    add_step(0);
    advance(1);
  }
  const auto finish = [&](auto part) PPENGINE_INLINED {
#pragma GCC unroll 2
    for (int j = 0; j < Vectors; ++j) {
      const auto there = part(j);
#pragma GCC unroll 16
      for (int i = 0; i < Height; ++i) {
        float* const c = of.c + i * of.row_c + n + j * lanes;
        if (of.add) sums[i][j] = hn::Add(sums[i][j], there.load(c));
        if (of.factors) sums[i][j] = hn::Mul(sums[i][j], all(of.factors[i]));
        there.store(c, sums[i][j]);
      }
    }
  };
  if (of.width - n >= Vectors * lanes)
    finish([](int) PPENGINE_INLINED { return Whole(); });
  else
    finish([&](int j) PPENGINE_INLINED { return First(of.width - n - j * lanes); });
}

template <int Height, bool Transposed>
void multiply_rows(const RowsByPanels& of) {
  const float* panel = of.panels;
  std::int64_t n = 0;
  for (; n + lanes < of.width; n += panel_width, panel += of.panel) multiply_tile<Height, 2, Transposed>(of, panel, n);
  if (n < of.width) multiply_tile<Height, 1, Transposed>(of, panel, n);
}

void multiply(const RowsByPanels& product) {
  with_height<tile_height>(product.height, [&](auto height) {
    product.transposed_a ? multiply_rows<height.value, true>(product) : multiply_rows<height.value, false>(product);
  });
}

constexpr float log2_e = 1.44269504088896341f;

// 2^x where x, which is not much above 0, is not below -126: there results leave the normal range. Else 0; NaN for NaN. To two units in
// the last place: the polynomial is a minimax one for |f| <= 1/2. Softmax is a tenth of all that attention does, and this takes two
// thirds of the time of exponential().
PPENGINE_INLINE V power_of_two(V x) {
  const V rounded = hn::Add(PPENGINE_AVX512 ? x : raised(x, -126.0f), all(rounding)), n = hn::Sub(rounded, all(rounding)),
          f = hn::Sub(x, n);
  V p = fma(all(1.326472615e-3f), f, 9.671512991e-3f);
  p = fma(p, f, 5.550733581e-2f);
  p = fma(p, f, 2.402224243e-1f);
  p = fma(p, f, 6.931470037e-1f);
  p = fma(p, f, 1.0f);
  return zero_below(x, -126.0f, scaled_by_power(p, rounded, n));
}

// body(key, which of the register's keys are seen) for what row i computes.
template <class Body>
PPENGINE_INLINE void for_keys(const Scores& of, std::int64_t i, const Body& body) {
  const std::int64_t seen = lesser(of.seen + i, of.keys), last = lesser(of.seen + of.height - 1, of.keys);
  std::int64_t key = 0;
  for (; key + lanes <= seen; key += lanes) body(key, Whole());
  for (; key < last; key += lanes) body(key, First(seen - key));
}

void softmax(const Scores& of, float* scores, float* largest, float* sums, float* factors) {
  const V scale = all(of.scale * log2_e);
  float before[most_tile_height];
  for (std::int64_t i = 0; i < of.height; ++i) {
    const float* const row = scores + i * of.row;
    before[i] = largest[i];
    V most = all(largest[i]);
    for_keys(of, i, [&](std::int64_t key, auto seen) PPENGINE_INLINED {
      most = seen.choose(hn::Max(most, hn::Mul(scale, load(row + key))), most);
    });
    largest[i] = hn::GetLane(hn::MaxOfLanes(f32, most));
  }
  for_lanes(of.height, [&](std::int64_t i, auto some) PPENGINE_INLINED {
    const V factor = power_of_two(hn::Sub(some.load(before + i), some.load(largest + i)));
    some.store(factors + i, factor);
    some.store(sums + i, hn::Mul(factor, some.load(sums + i)));
  });
  for (std::int64_t i = 0; i < of.height; ++i) {
    float* const row = scores + i * of.row;
    const V top = all(largest[i]);
    V sum = zero();
    for_keys(of, i, [&](std::int64_t key, auto seen) PPENGINE_INLINED {
      const V p = seen.keep(power_of_two(hn::MulSub(scale, load(row + key), top)));
      store(row + key, p);
      sum = hn::Add(sum, p);
    });
    sums[i] += sum_of(sum);
  }
}

void softmax_backward(const Scores& of, float* p, float* diff, const float* largest, const float* inverse, const float* deltas) {
  const V scale = all(of.scale), to_log2 = all(of.scale * log2_e);
  for (std::int64_t i = 0; i < of.height; ++i, p += of.row, diff += of.row) {
    const V top = all(largest[i]), factor = all(inverse[i]), delta = all(deltas[i]);
    for_keys(of, i, [&](std::int64_t key, auto seen) PPENGINE_INLINED {
      const V probability = hn::Mul(factor, seen.keep(power_of_two(hn::MulSub(to_log2, load(p + key), top))));
      store(p + key, probability);
      store(diff + key, seen.keep(hn::Mul(probability, hn::Mul(scale, hn::Sub(load(diff + key), delta)))));
    });
  }
}

void scale_rows(float* c, std::int64_t row_c, std::int64_t height, std::int64_t width, const float* factors) {
  for (std::int64_t i = 0; i < height; ++i, c += row_c)
    for_lanes(width, [&](std::int64_t k, auto there) PPENGINE_INLINED { there.store(c + k, hn::Mul(all(factors[i]), there.load(c + k))); });
}

void dot_rows(const float* a, const float* b, std::int64_t row, std::int64_t height, std::int64_t width, float* dots) {
  for (std::int64_t i = 0; i < height; ++i, a += row, b += row) {
    V sum = zero();
    for_lanes(width, [&](std::int64_t k, auto there) PPENGINE_INLINED { sum = fma(there.load(a + k), there.load(b + k), sum); });
    dots[i] = sum_of(sum);
  }
}

}  // namespace

const AttentionLoops* find_attention_loops() {
  static constexpr AttentionLoops loops{multiply, softmax, softmax_backward, scale_rows, dot_rows};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(AttentionLoops, attention_loops)
}  // namespace ppengine::ops::cpu
#endif
