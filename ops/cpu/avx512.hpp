// The inner parts of ops/cpu, for one thread and a CPU with AVX-512. Of products: packing, and a few rows with a packed panel.
#pragma once

#include <cstdint>

namespace ppengine::ops::cpu::avx512 {

constexpr int64_t panel_width = 32;  // columns of a panel: two registers
constexpr int64_t tile_height = 12;  // rows of a tile at most: 24 registers of sums, and the rest for operands

// panel[k][32] = columns of b, filled up with zeros. b is [depth, width...], or, transposed, [width, depth...].
void pack_panel(const float* b, int64_t row_b, bool transposed, int64_t width, int64_t depth, float* panel);

constexpr int64_t strip_floats(int64_t depth) { return depth * tile_height + 16; }  // whole registers are stored

// strip[k][tile_height] = `height` columns of a[depth, ...]: the rows of its transpose, side by side.
void pack_strip(const float* a, int64_t row_a, int64_t height, int64_t depth, float* strip);

// c[height,width] = a[height,depth] · panel (+ bias) (+ add)
struct Tile {
  int64_t height, width, depth;
  const float* a;
  int64_t row_a;  // 0: a is a strip
  const float* panel;
  const float* bias;  // or null
  const float* add;   // or null; rows as in c
  float* c;
  int64_t row_c;
  // Fetched into the cache meanwhile: the c of the tile after this one, and the first 32 floats of some rows of the next panel's b.
  const float* next_c;
  const float* next_b;
  int64_t row_b, rows_b;
};
void multiply(const Tile& tile);

constexpr int64_t sum_width = 128;  // columns at a time, at most

// sums[width] (+)= a's rows
void sum_rows(const float* a, int64_t row_a, int64_t rows, int64_t width, float* sums, bool accumulate);

struct ActivationPasses {
  void (*forward)(const float* src, float* dst, int64_t count);
  void (*backward)(const float* src, const float* diff_dst, float* diff_src, int64_t count);
};
extern const ActivationPasses gelu_tanh, gelu_erf, silu, relu;

// Layer norm (centered) or RMS norm of rows; all pointers but gamma and beta are of the first row. beta, mean and add may be null.
struct Norms {
  int64_t width;
  float epsilon;
  bool centered;
  const float* gamma;
  const float* beta;
};
void norm_forward(const Norms& n, const float* src, float* dst, float* mean, float* rstd, int64_t rows);
void norm_backward_input(const Norms& n, const float* src, const float* diff_dst, const float* mean, const float* rstd, const float* add,
                         float* diff_src, int64_t rows);
constexpr int64_t norm_columns = 64;  // columns at a time, at most
// Of `width` columns; src, diff_dst and the gradients begin there.
void norm_backward_weight(const Norms& n, const float* src, const float* diff_dst, const float* mean, const float* rstd, int64_t rows,
                          int64_t width, float* diff_gamma, float* diff_beta, bool accumulate);

}  // namespace ppengine::ops::cpu::avx512
