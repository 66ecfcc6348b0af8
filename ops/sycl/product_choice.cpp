// Which of our kernels makes a product: a row at a time, tiles, or tensor cores.
#include <ppengine/ops/sycl/product_choice.hpp>

#include <fmt/core.h>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/divide_up.hpp>

namespace ppengine::ops::own {
namespace {

constexpr std::int64_t tile_side = 64, tile_threads = 16;  // as in kernels/tile.hpp
constexpr std::int64_t few_rows = 4;                       // up to here a tile would be mostly empty
constexpr std::int64_t chunk = 8;                          // elements of bf16 that are copied at a time (kernels/tensor_tiles.hpp)

// As in kernels/matmul_tensor_*.cpp.
struct TensorTile {
  const char* name;
  std::int64_t m, n;
  std::size_t warps;
};
constexpr TensorTile large{"large", 128, 256, 8}, small{"small", 64, 64, 4};

// How an operand lies: 'k', contiguous along the sum; the letter of its other dimension, contiguous along that; 0: neither, or its rows do
// not begin at multiples of a chunk.
char layout_of(char name, std::int64_t count, std::int64_t stride, std::int64_t stride_k, std::int64_t outer, std::int64_t inner) {
  if (outer % chunk != 0 || inner % chunk != 0) return 0;
  if (stride_k == 1 && stride % chunk == 0) return 'k';
  return stride == 1 && stride_k % chunk == 0 && count % chunk == 0 ? name : char{};
}

std::size_t up(std::int64_t count, std::int64_t by) { return static_cast<std::size_t>(divide_up(count, by)); }

ProductChoice with_tensor_cores(const ProductUnits& units, const char* types, const MatmulShape& s, std::int64_t batch, bool aligned) {
  const auto cut = [&](const TensorTile& tile, const std::string& layout) {
    return ProductChoice{fmt::format("matmul_tensor_{}", tile.name),
                         fmt::format("matmul_{}_{}", layout, types),
                         up(s.n, tile.n),
                         up(s.m, tile.m) * static_cast<std::size_t>(batch),
                         tile.warps,
                         32};
  };
  const char a = layout_of('m', s.m, s.a_m, s.a_k, s.a_outer, s.a_inner), b = layout_of('n', s.n, s.b_n, s.b_k, s.b_outer, s.b_inner);
  if (!aligned || !a || !b || (a == 'm' && b == 'k')) return cut(small, "any");
  // Large tiles read less, but there have to be enough of them for all multiprocessors.
  const bool enough = up(s.m, large.m) * up(s.n, large.n) * static_cast<std::size_t>(batch) >= static_cast<std::size_t>(units.count);
  const TensorTile& tile = enough ? large : small;
  return cut(tile, fmt::format("{}_{}{}", tile.name, a, b));
}

}  // namespace

ProductChoice choose_product(const ProductUnits& units, Type in, Type out, const MatmulShape& s, std::int64_t batch, bool aligned) {
  PPENGINE_ASSERT(in != Type::i32 && out != Type::i32 && !(in == Type::f32 && out == Type::bf16));
  const char* const types = in == Type::f32 ? "f32" : out == Type::f32 ? "bf16_f32" : "bf16";
  const auto count = static_cast<std::size_t>(batch);
  if (s.m <= few_rows)
    return {"matmul",    fmt::format("matvec_{}", types), static_cast<std::size_t>(s.m) * count, up(s.n, tile_threads), tile_threads,
            tile_threads};
  if (in == Type::bf16 && units.tensor_cores && s.c_n == 1) return with_tensor_cores(units, types, s, batch, aligned);
  return {"matmul", fmt::format("matmul_{}", types), up(s.m, tile_side) * count, up(s.n, tile_side), tile_threads, tile_threads};
}

}  // namespace ppengine::ops::own
