// The inner loops of ops/cpu, for one thread, written once over Google Highway and compiled for every vector width that a CPU may have
// (SSE4, AVX2, AVX-512, NEON): a table of functions per part, chosen at run time from what the CPU has and --isa allows.
#pragma once

#include <cstdint>

namespace ppengine::ops::cpu {

// Bounds over all targets, for arrays.
constexpr std::int64_t most_lanes = 16, most_panel_width = 32, least_tile_height = 6, most_tile_height = 12;

// c[height,width] = a[height,depth] · panel (+ bias) (+ add)
struct Tile {
  std::int64_t height, width, depth;
  const float* a;
  std::int64_t row_a;  // 0: a is a strip
  const float* panel;
  const float* bias;  // or null
  const float* add;   // or null; rows as in c
  float* c;
  std::int64_t row_c;
  // Fetched into the cache meanwhile: the c of the tile after this one, and the first floats of some rows of the next panel's b.
  const float* next_c;
  const float* next_b;
  std::int64_t row_b, rows_b;
};

struct ProductLoops {
  const char* target;        // "AVX2"
  std::int64_t lanes;        // floats of a register
  std::int64_t panel_width;  // columns of a panel: two registers
  std::int64_t tile_height;  // rows of a tile at most: sums take all registers but those for operands
  std::int64_t sum_width;    // columns that sum_rows takes at once, at most

  // panel[k][panel_width] = columns of b, filled up with zeros. b is [depth, width...], or, transposed, [width, depth...].
  void (*pack_panel)(const float* b, std::int64_t row_b, bool transposed, std::int64_t width, std::int64_t depth, float* panel);
  // strip[k][tile_height] = `height` columns of a[depth, ...]: the rows of its transpose, side by side.
  void (*pack_strip)(const float* a, std::int64_t row_a, std::int64_t height, std::int64_t depth, float* strip);
  void (*multiply)(const Tile& tile);
  // sums[width] (+)= a's rows
  void (*sum_rows)(const float* a, std::int64_t row_a, std::int64_t rows, std::int64_t width, float* sums, bool accumulate);
  // The sum of `count` floats: reads memory with as little arithmetic as there can be.
  float (*read)(const float* from, std::int64_t count);

  std::int64_t strip_floats(std::int64_t depth) const { return depth * tile_height + most_lanes; }  // whole registers are stored
};

struct ActivationLoops {
  void (*forward)(const float* src, float* dst, std::int64_t count);
  void (*backward)(const float* src, const float* diff_dst, float* diff_src, std::int64_t count);
};
struct ActivationTable {
  ActivationLoops gelu_tanh, gelu_erf, silu, relu;
};

// Layer norm (centered) or RMS norm of rows; all pointers but gamma and beta are of the first row. beta, mean and add may be null.
struct Norms {
  std::int64_t width;
  float epsilon;
  bool centered;
  const float* gamma;
  const float* beta;
};
struct NormLoops {
  std::int64_t columns;  // that backward_weight takes at once, at most
  void (*forward)(const Norms& n, const float* src, float* dst, float* mean, float* rstd, std::int64_t rows);
  void (*backward_input)(const Norms& n, const float* src, const float* diff_dst, const float* mean, const float* rstd, const float* add,
                         float* diff_src, std::int64_t rows);
  // Of `width` columns; src, diff_dst and the gradients begin there.
  void (*backward_weight)(const Norms& n, const float* src, const float* diff_dst, const float* mean, const float* rstd, std::int64_t rows,
                          std::int64_t width, float* diff_gamma, float* diff_beta, bool accumulate);
};

// Parts of rows of narrow weights, to f32. int4 begins with a block (ops/weights.hpp).
struct WidenLoops {
  void (*bf16)(const std::uint16_t* from, std::int64_t count, float* to);
  void (*int8)(const std::int8_t* from, float scale, std::int64_t count, float* to);
  void (*int4)(const std::uint8_t* from, float step, float least, std::int64_t count, float* to);
};

// Keeps to --isa; throws where the CPU does not have what was asked for.
void limit_targets();

// Null where the CPU has none of the vectors that these are compiled for.
const ProductLoops* product_loops();
const ActivationTable* activation_loops();
const NormLoops* norm_loops();
const WidenLoops* widen_loops();

}  // namespace ppengine::ops::cpu
