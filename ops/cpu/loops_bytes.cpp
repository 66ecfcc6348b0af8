// Loops of linear layers with 4-bit weights over rows of bytes: integer products, summed up exactly within a block of 32 inputs and in f32
// between blocks.
#include <algorithm>
#include <bit>
#include <cstring>

#include <ppengine/ops/cpu/loops_steps.hpp>
#include <ppengine/ops/cpu/targets.hpp>
#include <ppengine/ops/detail/divide_up.hpp>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE <ppengine/ops/cpu/loops_bytes.cpp>
#include <hwy/foreach_target.h>

#include <ppengine/ops/cpu/lanes-inl.hpp>

HWY_BEFORE_NAMESPACE();
namespace ppengine::ops::cpu::HWY_NAMESPACE {
#if HWY_TARGET == HWY_SCALAR
const ByteLoops* find_byte_loops() { return nullptr; }
#else
namespace {

constexpr std::int64_t block = 32, block_bytes = 16;  // of int4 (ops/weights.hpp)
constexpr std::int64_t blocks_at_once = lanes / 4;    // a register of weights: a block has 16 bytes of it, and four lanes of the sums
constexpr std::int64_t weight_bytes = blocks_at_once * block_bytes, row_bytes = blocks_at_once * block;
constexpr std::int64_t line = 64;
constexpr std::int64_t fetched_ahead = 8192;  // bytes of weights ahead of what is read; a fourth of it of their words

using VI = hn::Vec<I>;
constexpr hn::Repartition<std::uint8_t, F> u8;
constexpr hn::Repartition<std::int8_t, F> i8;
constexpr hn::Repartition<std::uint32_t, F> u32;
using VB = hn::Vec<decltype(u8)>;
using VU = hn::Vec<decltype(u32)>;

PPENGINE_INLINE void load_halves(const std::uint8_t* p, VB& lower, VB& upper) {
  const VB two = hn::LoadU(u8, p), mask = hn::Set(u8, 15);
  const hn::Repartition<std::uint16_t, F> u16;
  lower = hn::And(two, mask);
  upper = hn::And(hn::BitCast(u8, hn::ShiftRight<4>(hn::BitCast(u16, two))), mask);
}

// Each lane: the sum of eight products, four of each half; x has the bytes of the lower halves, then those of the upper.
template <bool Vnni>
PPENGINE_INLINE VI dot(VB lower, VB upper, const std::int8_t* x) {
#if PPENGINE_AVX512
  if constexpr (Vnni) {  // Highway knows no target with these instructions
    __m512i sum = _mm512_setzero_si512();
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(lower.raw), "m"(*reinterpret_cast<const __m512i_u*>(x)));
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(upper.raw), "m"(*reinterpret_cast<const __m512i_u*>(x + weight_bytes)));
    return VI{sum};
  }
#endif
#if HWY_ARCH_X86
  // 4 · 15 · 127 fits 16 bits.
  const auto a = hn::LoadU(i8, x), b = hn::LoadU(i8, x + weight_bytes);
#if PPENGINE_AVX512
  const __m512i pairs = _mm512_add_epi16(_mm512_maddubs_epi16(lower.raw, a.raw), _mm512_maddubs_epi16(upper.raw, b.raw));
  return VI{_mm512_madd_epi16(pairs, _mm512_set1_epi16(1))};
#elif HWY_TARGET == HWY_AVX2
  const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(lower.raw, a.raw), _mm256_maddubs_epi16(upper.raw, b.raw));
  return VI{_mm256_madd_epi16(pairs, _mm256_set1_epi16(1))};
#else
  const __m128i pairs = _mm_add_epi16(_mm_maddubs_epi16(lower.raw, a.raw), _mm_maddubs_epi16(upper.raw, b.raw));
  return VI{_mm_madd_epi16(pairs, _mm_set1_epi16(1))};
#endif
#else  // a register is one block: its lanes are added up in any order
  const hn::Repartition<std::int16_t, F> i16;
  VI even = hn::Zero(i32), odd = hn::Zero(i32);
  const auto add = [&](VB weights, const std::int8_t* bytes) PPENGINE_INLINED {
    const auto a = hn::BitCast(i8, weights), b = hn::LoadU(i8, bytes);
    even = hn::ReorderWidenMulAccumulate(i32, hn::PromoteTo(i16, hn::LowerHalf(a)), hn::PromoteTo(i16, hn::LowerHalf(b)), even, odd);
    even = hn::ReorderWidenMulAccumulate(i32, hn::PromoteTo(i16, hn::UpperHalf(hn::Half<decltype(i8)>(), a)),
                                         hn::PromoteTo(i16, hn::UpperHalf(hn::Half<decltype(i8)>(), b)), even, odd);
  };
  add(lower, x);
  add(upper, x + weight_bytes);
  return hn::Add(even, odd);
#endif
}

// One word per block, each in four lanes.
PPENGINE_INLINE VU words_of_blocks(const std::uint32_t* words) {
#if PPENGINE_AVX512
  const __m512i four = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(words)));
  return VU{_mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), four)};
#elif HWY_ARCH_X86 && HWY_TARGET == HWY_AVX2
  const __m256i two = _mm256_castsi128_si256(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(words)));
  return VU{_mm256_permutevar8x32_epi32(two, _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1))};
#else
  return hn::Set(u32, *words);
#endif
}
PPENGINE_INLINE V steps_of(VU words) { return hn::BitCast(f32, hn::And(words, hn::Set(u32, 0xffff0000u))); }
PPENGINE_INLINE V leasts_of(VU words) { return hn::BitCast(f32, hn::ShiftLeft<16>(words)); }

ByteRowShape shape(std::int64_t in, std::int64_t group) {
  const std::int64_t registers = divide_up(divide_up(in, block), blocks_at_once), groups = divide_up(in, group);
  ByteRowShape of{in, group, registers * row_bytes, 0, 0};
  of.sums_at = of.scales_at + registers * lanes * 4;
  of.bytes = divide_up(of.sums_at + divide_up(groups, lanes) * lanes * 4, line) * line;
  return of;
}

void quantize(const ByteRowShape& of, const float* src, void* row) {
  auto* const bytes = static_cast<std::int8_t*>(row);
  auto* const scales = reinterpret_cast<float*>(bytes + of.scales_at);
  auto* const sums = reinterpret_cast<float*>(bytes + of.sums_at);
  std::memset(sums, 0, static_cast<std::size_t>(of.bytes - of.sums_at));
  const std::int64_t blocks = divide_up(of.in, block), registers = divide_up(blocks, blocks_at_once);
  constexpr hn::Rebind<std::int8_t, F> narrow;
  for (std::int64_t b = 0; b < registers * blocks_at_once; ++b) {
    HWY_ALIGN float padded[block] = {};
    const float* x = src + b * block;
    if (b * block + block > of.in) {
      if (b < blocks) std::copy(x, src + of.in, padded);
      x = padded;
    }
    VI largest = hn::Zero(i32);  // the magnitudes' bits sort as the numbers do, those of NaN last
    for (std::int64_t i = 0; i < block; i += lanes)
      largest = hn::Max(largest, hn::And(hn::BitCast(i32, load(x + i)), hn::Set(i32, 0x7fffffff)));
    const auto most = std::bit_cast<float>(hn::GetLane(hn::MaxOfLanes(i32, largest)));
    const bool usable = most > 1e-35f && most <= 3e38f;
    const float scale = most <= 3e38f ? most / 127.0f : std::bit_cast<float>(0x7fc00000u), inverse = usable ? 127.0f / most : 0.0f;
    const std::int64_t at = b / blocks_at_once, within = b % blocks_at_once;
    std::int8_t* const to = bytes + at * row_bytes + within * block_bytes;
    VI sum = hn::Zero(i32);
    for (std::int64_t i = 0; i < block; i += lanes) {
      // A product with zero is not zero for what is not finite.
      const VI q = usable ? hn::NearestInt(hn::Mul(load(x + i), all(inverse))) : hn::Zero(i32);
      sum = hn::Add(sum, q);
      hn::StoreU(hn::DemoteTo(narrow, q), narrow, to + (i < block_bytes ? i : weight_bytes + i - block_bytes));
    }
    for (std::int64_t i = 0; i < 4; ++i) scales[at * lanes + within * 4 + i] = scale;
    if (b < blocks) sums[b * block / of.group] += scale * static_cast<float>(hn::GetLane(hn::SumOfLanes(i32, sum)));
  }
}

// Where a weight's blocks and words are read from, register by register; the last register of a row may have less than it holds.
struct WeightRow {
  const std::uint8_t* bytes;
  const std::uint32_t* words;
};

template <bool Vnni, int Rows, int Outs>
void tile(const LinearStep& step, const ByteRowShape& of, const std::int8_t* const* rows, std::int64_t out, float* sums,
          std::int64_t row_sums) {
  const std::int64_t blocks = divide_up(of.in, block), registers = divide_up(blocks, blocks_at_once), whole = blocks / blocks_at_once;
  const std::int64_t groups = divide_up(of.in, of.group), in_group = of.group / block;
  WeightRow w[Outs];
  V total[Outs][Rows];
#pragma GCC unroll 8
  for (int k = 0; k < Outs; ++k) {
    const std::int64_t o = std::min(out + k, static_cast<std::int64_t>(step.out) - 1);
    w[k] = {static_cast<const std::uint8_t*>(step.weight) + o * blocks * block_bytes,
            reinterpret_cast<const std::uint32_t*>(step.scales) + o * groups};
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) total[k][r] = zero();
  }
  const auto add = [&](std::int64_t at, const VB(&lower)[Outs], const VB(&upper)[Outs], const V(&steps)[Outs]) PPENGINE_INLINED {
#pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) {
      const V scale = load(reinterpret_cast<const float*>(rows[r] + of.scales_at) + at * lanes);
#pragma GCC unroll 8
      for (int k = 0; k < Outs; ++k)
        total[k][r] =
            fma(hn::ConvertTo(f32, dot<Vnni>(lower[k], upper[k], rows[r] + at * row_bytes)), hn::Mul(steps[k], scale), total[k][r]);
    }
  };
  for (std::int64_t at = 0; at < whole; ++at) {
    VB lower[Outs], upper[Outs];
    V steps[Outs];
#pragma GCC unroll 8
    for (int k = 0; k < Outs; ++k) {
      const std::uint8_t* const p = w[k].bytes + at * weight_bytes;
      if constexpr (Rows <= 2) {  // with more rows there is time for the CPU to see what comes next
        __builtin_prefetch(p + fetched_ahead, 0, 2);
        __builtin_prefetch(reinterpret_cast<const char*>(w[k].words + at * blocks_at_once) + fetched_ahead / 4, 0, 2);
      }
      load_halves(p, lower[k], upper[k]);
      if (in_group == 1) {
        steps[k] = steps_of(words_of_blocks(w[k].words + at * blocks_at_once));
      } else if (in_group % blocks_at_once == 0) {
        steps[k] = steps_of(hn::Set(u32, w[k].words[at * blocks_at_once / in_group]));
      } else {
        std::uint32_t words[blocks_at_once];
        for (std::int64_t b = 0; b < blocks_at_once; ++b) words[b] = w[k].words[(at * blocks_at_once + b) / in_group];
        steps[k] = steps_of(words_of_blocks(words));
      }
    }
    add(at, lower, upper, steps);
  }
  if (whole < registers) {
    VB lower[Outs], upper[Outs];
    V steps[Outs];
    for (int k = 0; k < Outs; ++k) {
      std::uint8_t bytes[weight_bytes] = {};
      std::uint32_t words[blocks_at_once] = {};
      for (std::int64_t b = whole * blocks_at_once; b < blocks; ++b) {
        std::memcpy(bytes + (b % blocks_at_once) * block_bytes, w[k].bytes + b * block_bytes, block_bytes);
        words[b % blocks_at_once] = w[k].words[b / in_group];
      }
      load_halves(bytes, lower[k], upper[k]);
      steps[k] = steps_of(words_of_blocks(words));
    }
    add(whole, lower, upper, steps);
  }
  // What zero is worth, times the sum of the inputs, group by group.
  for (std::int64_t g = 0; g < groups; g += lanes)
    for (int k = 0; k < Outs; ++k) {
      const V words = First(groups - g).load(reinterpret_cast<const float*>(w[k].words) + g), least = leasts_of(hn::BitCast(u32, words));
#pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) total[k][r] = fma(least, load(reinterpret_cast<const float*>(rows[r] + of.sums_at) + g), total[k][r]);
    }
  for (int k = 0; k < Outs; ++k)
    for (int r = 0; r < Rows; ++r) sums[r * row_sums + k] = sum_of(total[k][r]);
}

constexpr std::int64_t most_outs = 64;

template <bool Vnni, int Rows, int Outs>
void outputs(const LinearStep& step, const ByteRowShape& of, const void* byte_rows, std::int64_t row, std::int64_t begin,
             std::int64_t end) {
  const std::int8_t* rows[Rows];
  for (int r = 0; r < Rows; ++r) rows[r] = static_cast<const std::int8_t*>(byte_rows) + (row + r) * of.bytes;
  float sums[Rows * (most_outs + Outs)];
  for (std::int64_t o = begin; o < end; o += most_outs) {
    const std::int64_t last = std::min(o + most_outs, end);
    for (std::int64_t k = o; k < last; k += Outs) tile<Vnni, Rows, Outs>(step, of, rows, k, sums + k - o, most_outs + Outs);
    finish_outputs(step, sums, most_outs + Outs, row, Rows, o, last);
  }
}

template <bool Vnni>
void linear(const LinearStep& step, const ByteRowShape& of, const void* byte_rows, std::int64_t rows, std::int64_t begin,
            std::int64_t end) {
  constexpr bool many_registers = PPENGINE_AVX512 || HWY_ARCH_ARM_A64;
  constexpr int tall = many_registers ? 8 : 4, outs = 2;
  std::int64_t row = 0;
  for (; row + tall <= rows; row += tall) outputs<Vnni, tall, outs>(step, of, byte_rows, row, begin, end);
  if constexpr (tall > 4)
    for (; row + 4 <= rows; row += 4) outputs<Vnni, 4, 4>(step, of, byte_rows, row, begin, end);
  for (; row + 2 <= rows; row += 2) outputs<Vnni, 2, 4>(step, of, byte_rows, row, begin, end);
  for (; row < rows; ++row) outputs<Vnni, 1, 4>(step, of, byte_rows, row, begin, end);
}

}  // namespace

const ByteLoops* find_byte_loops() {
#if PPENGINE_AVX512
  static const ByteLoops with_vnni{shape, quantize, linear<true>};
  if (__builtin_cpu_supports("avx512vnni")) return &with_vnni;
#endif
  static const ByteLoops loops{shape, quantize, linear<false>};
  return &loops;
}
#endif
}  // namespace ppengine::ops::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ppengine::ops::cpu {
PPENGINE_CHOSEN_LOOPS(ByteLoops, byte_loops)
}  // namespace ppengine::ops::cpu
#endif
