// How cpu::gemm walks over its matrices: a panel of b is packed once, stays in the first cache, and meets all rows of a, which come from
// the second; meanwhile the next panel and the next part of c are fetched from memory. Parts are dealt out as threads get free, so that
// a core that somebody else uses for a while does not hold up the others.
#include <ppengine/ops/cpu/gemm.hpp>

#include <oneapi/tbb/task_arena.h>

#include <bit>
#include <memory>

#include <ppengine/ops/cpu/loops.hpp>
#include <ppengine/ops/cpu/parallel.hpp>
#include <ppengine/ops/weights.hpp>

namespace ppengine::ops::cpu {
namespace {

constexpr std::int64_t most_depth = 384;  // steps that are summed at once: a panel of them takes as much as the first cache has
constexpr std::int64_t most_rows = 264;   // of a and c that meet a panel: whole tiles
static_assert(most_rows % most_tile_height == 0 && most_rows % least_tile_height == 0);
// Columns of c that one thread takes at a time, so that its part of c stays in the second cache while sums go on; more where a is
// packed for them.
constexpr std::int64_t most_columns = 384, most_columns_of_strips = 1024;
constexpr std::int64_t parts_per_thread = 8, parts_per_thread_of_strips = 2;

// Part i of `count` parts of `total` begins here; they differ by one at most.
std::int64_t begin_of(std::int64_t i, std::int64_t count, std::int64_t total) { return i * total / count; }

// Kept for the life of a thread.
struct alignas(64) Packed {
  float wide[most_panel_width * most_depth];  // rows of a narrow b
  float panel[most_depth * most_panel_width];
  float strips[most_rows * most_depth + most_rows / least_tile_height * most_lanes];
};
Packed& packed_of_thread() {
  thread_local const auto packed = std::make_unique<Packed>();
  return *packed;
}

// Inputs [begin, begin + count) of one output. begin is a multiple of 32.
void widen_row(const PackedWeight& weight, const void* packed, std::int64_t row, std::int64_t begin, std::int64_t count, float* to) {
  const WidenLoops& loops = *widen_loops();
  const auto* const bytes = static_cast<const std::byte*>(packed) + static_cast<std::size_t>(row) * weight.row_bytes();
  if (weight.storage.format == WeightFormat::bf16) return loops.bf16(reinterpret_cast<const std::uint16_t*>(bytes) + begin, count, to);
  const float* const scales = weight.scales(packed) + row * weight.groups();
  const std::int64_t group = weight.group();
  for (std::int64_t i = begin, end = begin + count, next = 0; i < end; i = next) {
    next = std::min((i / group + 1) * group, end);
    if (weight.storage.format == WeightFormat::int8) {
      loops.int8(reinterpret_cast<const std::int8_t*>(bytes) + i, scales[i / group], next - i, to + i - begin);
    } else {
      const auto word = std::bit_cast<std::uint32_t>(scales[i / group]);
      loops.int4(reinterpret_cast<const std::uint8_t*>(bytes) + i / 2, std::bit_cast<float>(word & 0xffff0000u),
                 std::bit_cast<float>(word << 16), next - i, to + i - begin);
    }
  }
}

void multiply_part(const Gemm& g, std::int64_t row_begin, std::int64_t row_end, std::int64_t column_begin, std::int64_t column_end) {
  const ProductLoops& loops = *product_loops();
  const std::int64_t panel_width = loops.panel_width;
  Packed& packed = packed_of_thread();
  const std::int64_t row_b = g.transposed_b ? g.k : g.n;
  const auto b_at = [&](std::int64_t k, std::int64_t n) { return g.transposed_b ? g.b + n * row_b + k : g.b + k * row_b + n; };
  const std::int64_t step = g.packed_b ? 32 : 16;
  const std::int64_t most = divide_up(divide_up(g.k, divide_up(g.k, most_depth)), step) * step;
  const std::int64_t rows = row_end - row_begin, tiles = divide_up(rows, loops.tile_height);
  for (std::int64_t k = 0; k < g.k; k += most) {
    const std::int64_t depth = std::min(most, g.k - k);
    for (std::int64_t n = column_begin; n < column_end; n += panel_width) {
      const std::int64_t width = std::min(panel_width, column_end - n);
      if (g.packed_b) {
        for (std::int64_t i = 0; i < width; ++i) widen_row(*g.packed_b, g.b, n + i, k, depth, packed.wide + i * most_depth);
        loops.pack_panel(packed.wide, most_depth, true, width, depth, packed.panel);
      } else {
        loops.pack_panel(b_at(k, n), row_b, g.transposed_b, width, depth, packed.panel);
      }
      const bool last = n + panel_width >= column_end, at_end = k + most >= g.k;
      const std::int64_t next_n = !last ? n + panel_width : at_end ? column_end : column_begin;
      const std::int64_t next_k = !last ? k : at_end ? 0 : k + most;
      for (std::int64_t i = 0; i < tiles; ++i) {
        const std::int64_t m = row_begin + begin_of(i, tiles, rows), height = row_begin + begin_of(i + 1, tiles, rows) - m;
        float* const strip = packed.strips + i * loops.strip_floats(depth);
        // The first panel packs the strips, which are then still in the first cache.
        if (g.transposed_a && n == column_begin) loops.pack_strip(g.a + k * g.m + m, g.m, height, depth, strip);
        const float* const a = g.transposed_a ? strip : g.a + m * g.k + k;
        float* const c = g.c + m * g.n + n;
        const float* const add = k > 0 ? c : g.add ? g.add + m * g.n + n : nullptr;
        const float* const next_c = i + 1 < tiles ? c + height * g.n : g.c + row_begin * g.n + next_n;
        // Each of the first tiles fetches a square of the next panel.
        const std::int64_t fetched = std::min(i * panel_width, depth);
        const float* const next_b = g.packed_b       ? packed.wide
                                    : g.transposed_b ? b_at(next_k + fetched, next_n)
                                                     : b_at(next_k, next_n) + fetched * row_b;
        loops.multiply({height, width, depth, a, g.transposed_a ? 0 : g.k, packed.panel, k == 0 && g.bias ? g.bias + n : nullptr, add, c,
                        g.n, next_c, next_b, row_b, fetched < depth && !g.packed_b ? panel_width : 0});
      }
    }
  }
}

}  // namespace

bool has_vectors() { return product_loops() != nullptr; }
const char* vector_target() { return has_vectors() ? product_loops()->target : "none"; }

void gemm(const Gemm& g) {
  const std::int64_t panel_width = product_loops()->panel_width;
  const std::int64_t row_parts = divide_up(g.m, most_rows), panels = divide_up(g.n, panel_width);
  const std::int64_t threads = oneapi::tbb::this_task_arena::max_concurrency();
  const std::int64_t wanted = threads * (g.transposed_a ? parts_per_thread_of_strips : parts_per_thread);
  const std::int64_t most = (g.transposed_a ? most_columns_of_strips : most_columns) / panel_width;
  const std::int64_t columns = std::clamp<std::int64_t>(row_parts * panels / wanted, 1, most) * panel_width;
  for_parts(row_parts * divide_up(g.n, columns), 1, [&](std::int64_t part, std::int64_t) {
    const std::int64_t row = part % row_parts, column = part / row_parts * columns;
    multiply_part(g, begin_of(row, row_parts, g.m), begin_of(row + 1, row_parts, g.m), column, std::min(column + columns, g.n));
  });
}

void sum_rows(const float* a, std::int64_t rows, std::int64_t columns, float* sums, bool accumulate) {
  const ProductLoops& loops = *product_loops();
  for_parts(columns, loops.sum_width,
            [&](std::int64_t begin, std::int64_t end) { loops.sum_rows(a + begin, columns, rows, end - begin, sums + begin, accumulate); });
}

}  // namespace ppengine::ops::cpu
