// Loops of products: packing, and a few rows with a packed panel.
#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/targets.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_product.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const ProductLoops* find_product_loops() { return nullptr; }
#else
namespace {

constexpr std::int64_t fetch_steps = 8;                                              // of a tile, between fetches
constexpr std::int64_t line_floats = 16;                                             // of a cache line
constexpr std::int64_t panel_lines = (panel_width + line_floats - 1) / line_floats;  // of a row of a panel

PPENGINE_INLINE void fetch(const float* p) { __builtin_prefetch(p, 0); }
PPENGINE_INLINE void fetch_to_write(const float* p) {
#if HWY_ARCH_X86
  asm volatile("prefetchw %0" : : "m"(*p));
#else
  __builtin_prefetch(p, 1);
#endif
}

// A square of a register's lanes; within each block of 128 bits first.
PPENGINE_INLINE void transpose(V (&rows)[lanes]) {
  const hn::Repartition<double, F> f64;
  V t[lanes];
#pragma GCC unroll 8
  for (int i = 0; i < lanes; i += 2) {
    t[i] = hn::InterleaveLower(f32, rows[i], rows[i + 1]);
    t[i + 1] = hn::InterleaveUpper(f32, rows[i], rows[i + 1]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < lanes; i += 4) {
    const auto a = hn::BitCast(f64, t[i]), b = hn::BitCast(f64, t[i + 1]), c = hn::BitCast(f64, t[i + 2]), d = hn::BitCast(f64, t[i + 3]);
    rows[i] = hn::BitCast(f32, hn::InterleaveLower(f64, a, c));
    rows[i + 1] = hn::BitCast(f32, hn::InterleaveUpper(f64, a, c));
    rows[i + 2] = hn::BitCast(f32, hn::InterleaveLower(f64, b, d));
    rows[i + 3] = hn::BitCast(f32, hn::InterleaveUpper(f64, b, d));
  }
#if PPENGINE_AVX512
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const __m512 r0 = rows[i].raw, r4 = rows[i + 4].raw, r8 = rows[i + 8].raw, r12 = rows[i + 12].raw;
    const __m512 a = _mm512_shuffle_f32x4(r0, r4, 0x88), b = _mm512_shuffle_f32x4(r0, r4, 0xdd);
    const __m512 c = _mm512_shuffle_f32x4(r8, r12, 0x88), d = _mm512_shuffle_f32x4(r8, r12, 0xdd);
    t[i] = V{_mm512_shuffle_f32x4(a, c, 0x88)};
    t[i + 4] = V{_mm512_shuffle_f32x4(b, d, 0x88)};
    t[i + 8] = V{_mm512_shuffle_f32x4(a, c, 0xdd)};
    t[i + 12] = V{_mm512_shuffle_f32x4(b, d, 0xdd)};
  }
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) rows[i] = t[i];
#elif HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const V lower = hn::ConcatLowerLower(f32, rows[i + 4], rows[i]), upper = hn::ConcatUpperUpper(f32, rows[i + 4], rows[i]);
    rows[i] = lower;
    rows[i + 4] = upper;
  }
#else
  static_assert(lanes == 4);
#endif
}

// A register's worth of a panel's columns, from as many rows of b.
void pack_transposed(const float* b, std::int64_t row_b, std::int64_t width, std::int64_t depth, float* panel) {
  std::int64_t k = 0;
  V rows[lanes];
  for (; k + lanes <= depth; k += lanes) {
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) rows[i] = i < width ? load(b + i * row_b + k) : zero();
    transpose(rows);
#pragma GCC unroll 16
    for (int i = 0; i < lanes; ++i) hn::Store(rows[i], f32, panel + (k + i) * panel_width);
  }
  if (k == depth) return;
  const First there(depth - k);
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i) rows[i] = i < width ? there.load(b + i * row_b + k) : zero();
  transpose(rows);
#pragma GCC unroll 16
  for (int i = 0; i < lanes; ++i)
    if (k + i < depth) hn::Store(rows[i], f32, panel + (k + i) * panel_width);
}

void pack_panel(const float* b, std::int64_t row_b, bool transposed, std::int64_t width, std::int64_t depth, float* panel) {
  if (transposed) {
    pack_transposed(b, row_b, width, depth, panel);
    pack_transposed(b + lanes * row_b, row_b, width - lanes, depth, panel + lanes);
    return;
  }
  const auto copy = [&](auto left, auto right) PPENGINE_INLINED {
    for (std::int64_t k = 0; k < depth; ++k, b += row_b, panel += panel_width) {
      hn::Store(left.load(b), f32, panel);
      hn::Store(right.load(b + lanes), f32, panel + lanes);
    }
  };
  if (width >= panel_width)
    copy(Whole(), Whole());
  else
    copy(First(width), First(width - lanes));
}

void pack_strip(const float* a, std::int64_t row_a, std::int64_t height, std::int64_t depth, float* strip) {
  // What is read beyond the height lies in the same matrix, but for the last rows, and is overwritten or not used.
  std::int64_t k = 0;
  constexpr std::int64_t registers = (tile_height + lanes - 1) / lanes;
  for (; (depth - 1 - k) * row_a + height >= registers * lanes; ++k, a += row_a, strip += tile_height) {
#pragma GCC unroll 4
    for (std::int64_t i = 0; i < registers; ++i) store(strip + i * lanes, load(a + i * lanes));
  }
  for (; k < depth; ++k, a += row_a, strip += tile_height)
    for (std::int64_t i = 0; i < height; ++i) strip[i] = a[i];
}

template <int Height, class Left, class Right>
PPENGINE_INLINE void finish_rows(const Tile& tile, V (&sums)[Height][2], Left left, Right right) {
  if (tile.bias) {
    const V bias[2] = {left.load(tile.bias), right.load(tile.bias + lanes)};
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      sums[i][0] = hn::Add(sums[i][0], bias[0]);
      sums[i][1] = hn::Add(sums[i][1], bias[1]);
    }
  }
  if (tile.add) {
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      const float* const add = tile.add + i * tile.row_c;
      sums[i][0] = hn::Add(sums[i][0], left.load(add));
      sums[i][1] = hn::Add(sums[i][1], right.load(add + lanes));
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i) {
    float* const c = tile.c + i * tile.row_c;
    left.store(c, sums[i][0]);
    right.store(c + lanes, sums[i][1]);
  }
}

template <int Height, bool Strip>
void multiply_rows(const Tile& tile) {
  V sums[Height][2];
#pragma GCC unroll 16
  for (int i = 0; i < Height; ++i) sums[i][0] = sums[i][1] = zero();

  // Every third row has a pointer of its own: the two behind it are then reached by what an address can add up itself.
  constexpr int pointers = Strip ? 1 : (Height + 2) / 3;
  constexpr std::int64_t step_a = Strip ? tile_height : 1;
  const std::int64_t row_a = Strip ? 1 : tile.row_a;
  const float* a[pointers];
#pragma GCC unroll 4
  for (int i = 0; i < pointers; ++i) a[i] = tile.a + i * 3 * row_a;
  const float* panel = tile.panel;
  const auto add_step = [&](std::int64_t u) PPENGINE_INLINED {
    const float* const line = panel + u * panel_width;
    const V left = hn::Load(f32, line), right = hn::Load(f32, line + lanes);
#pragma GCC unroll 16
    for (int i = 0; i < Height; ++i) {
      const float* const row = Strip ? a[0] + i : a[i / 3] + i % 3 * row_a;  // first the row, so that u is part of an address
      const V value = all(row[u * step_a]);
      sums[i][0] = fma(value, left, sums[i][0]);
      sums[i][1] = fma(value, right, sums[i][1]);
    }
  };
  const auto advance = [&](std::int64_t steps) PPENGINE_INLINED {
#pragma GCC unroll 4
    for (int i = 0; i < pointers; ++i) {
      a[i] += steps * step_a;
      asm("" : "+r"(a[i]));  // they stay pointers: the compiler would compute each row's address anew
    }
    panel += steps * panel_width;
  };
  // A few lines at a time: all at once they would hold up the loads of this tile. The last float of each line is asked for, since rows
  // need not begin with a cache line, and the line in which they do begin is the end of what was there before.
  const float* next_c = tile.next_c;
  const float* next_b = tile.next_b;
  std::int64_t k = 0;
  for (std::int64_t fetched = 0; k + fetch_steps <= tile.depth; k += fetch_steps, ++fetched) {
#pragma GCC unroll 2
    for (std::int64_t line = 1; line <= panel_lines; ++line) {
      fetch(next_b + line * line_floats - 1);
      fetch_to_write(next_c + line * line_floats - 1);
    }
    next_b += fetched + 1 < tile.rows_b ? tile.row_b : 0;
    next_c += fetched + 1 < Height ? tile.row_c : 0;
#pragma GCC unroll 1
    for (std::int64_t u = 0; u < fetch_steps; u += 2) {  // more at once, and g++ 12 moves sums between registers: 9 % slower with AVX2
      add_step(0);
      add_step(1);
      advance(2);
    }
  }
  for (; k < tile.depth; ++k, advance(1)) add_step(0);

  if (tile.width >= panel_width)
    finish_rows<Height>(tile, sums, Whole(), Whole());
  else
    finish_rows<Height>(tile, sums, First(tile.width), First(tile.width - lanes));
}

void multiply(const Tile& tile) {
  with_height<tile_height>(tile.height, [&](auto height) {
    tile.row_a == 0 ? multiply_rows<height.value, true>(tile) : multiply_rows<height.value, false>(tile);
  });
}

constexpr int sum_registers = 8;

void sum_rows(const float* a, std::int64_t row_a, std::int64_t rows, std::int64_t width, float* sums, bool accumulate) {
  const auto sum = [&](auto part) PPENGINE_INLINED {
    V total[sum_registers];
#pragma GCC unroll 8
    for (int i = 0; i < sum_registers; ++i) total[i] = accumulate ? part(i).load(sums + i * lanes) : zero();
    for (std::int64_t r = 0; r < rows; ++r, a += row_a) {
#pragma GCC unroll 8
      for (int i = 0; i < sum_registers; ++i) total[i] = hn::Add(total[i], part(i).load(a + i * lanes));
    }
#pragma GCC unroll 8
    for (int i = 0; i < sum_registers; ++i) part(i).store(sums + i * lanes, total[i]);
  };
  if (width >= sum_registers * lanes)
    sum([](int) PPENGINE_INLINED { return Whole(); });
  else
    sum([=](int i) PPENGINE_INLINED { return First(width - i * lanes); });
}

float read(const float* from, std::int64_t count) {
  constexpr int registers = 8;
  V sums[registers];
#pragma GCC unroll 8
  for (int i = 0; i < registers; ++i) sums[i] = zero();
  std::int64_t at = 0;
  for (; at + registers * lanes <= count; at += registers * lanes) {
    for (std::int64_t line = 0; line < registers * lanes; line += line_floats) fetch(from + at + 1024 + line);
#pragma GCC unroll 8
    for (int i = 0; i < registers; ++i) sums[i] = hn::Add(sums[i], load(from + at + i * lanes));
  }
  for (; at < count; ++at) sums[0] = hn::Add(sums[0], all(from[at]));
#pragma GCC unroll 8
  for (int i = 1; i < registers; ++i) sums[0] = hn::Add(sums[0], sums[i]);
  return sum_of(sums[0]);
}

}  // namespace

const ProductLoops* find_product_loops() {
  static const ProductLoops loops{hwy::TargetName(HWY_TARGET),
                                  lanes,
                                  panel_width,
                                  tile_height,
                                  sum_registers * lanes,
                                  pack_panel,
                                  pack_strip,
                                  multiply,
                                  sum_rows,
                                  read};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(ProductLoops, product_loops)
}  // namespace ppengine::ops::cpu
#endif
