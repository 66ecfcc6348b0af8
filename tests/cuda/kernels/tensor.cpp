// Launches of ops/kernels/matmul_tensor_large.cpp and matmul_tensor_small.cpp, beside matmul.cpp on the CPU device.
#include <ppengine/ops/kernels/matmul_shape.hpp>

#include "case.hpp"

namespace ppengine::test {
namespace {

std::uint32_t up(long count, long by) { return static_cast<std::uint32_t>((count + by - 1) / by); }

struct Layout {
  std::string name;
  bool a_along, b_along;  // contiguous along the sum
};

KernelCase product_case(const std::string& file, const std::string& kernel, const Layout& layout, const std::string& type, long m, long n,
                        long k, long batch, bool extras, ptx::Size3 tile, std::uint32_t warps) {
  const Element in = Element::bf16, out = type == "bf16" ? Element::bf16 : Element::f32;
  // Rows begin at multiples of 16 bytes, or anywhere.
  const auto row = [&](long elements) { return layout.name == "any" ? elements + 1 : (elements + 7) / 8 * 8; };
  const long a_row = row(layout.a_along ? k : m), b_row = row(layout.b_along ? k : n);
  const long a_size = (layout.a_along ? m : k) * a_row, b_size = (layout.b_along ? n : k) * b_row;
  const MatmulShape shape{m,
                          n,
                          k,
                          layout.a_along ? a_row : 1,
                          layout.a_along ? 1 : a_row,
                          layout.b_along ? 1 : b_row,
                          layout.b_along ? b_row : 1,
                          n,
                          1,
                          batch,
                          0,
                          a_size,
                          0,
                          b_size,
                          0,
                          m * n,
                          0.5f};
  const auto cells = [&](long count) { return static_cast<std::size_t>(batch * count); };
  KernelCase made =
      make_case(file, kernel, plane(up(n, tile.x), up(m, tile.y) * static_cast<std::uint32_t>(batch), warps, 32),
                {random(in, cells(a_size)), random(in, cells(b_size)), extras ? random(out, cells(m * n)) : empty(out, cells(m * n)),
                 extras ? random(in, static_cast<std::size_t>(n)) : none(), extras ? random(out, cells(m * n)) : none(), structure(shape),
                 small(extras ? 1 : 0)});
  made.twin = Twin{"matmul", "matmul_" + type, {up(n, 64), up(m, 64) * static_cast<std::uint32_t>(batch), 1}, {16, 16, 1}};
  return made;
}

}  // namespace

// Sums of 198: the unrolled loop once, two whole tiles and the beginning of another.
std::vector<KernelCase> tensor_product_cases() {
  std::vector<KernelCase> all;
  for (const std::string type : {"bf16", "bf16_f32"})
    for (const Layout& layout : {Layout{"kk", true, true}, {"kn", true, false}, {"mn", false, false}}) {
      const long ragged = layout.b_along ? 2 : 0;  // across the sum only whole chunks of eight
      all.push_back(product_case("matmul_tensor_large", "matmul_large_" + layout.name + "_" + type, layout, type,
                                 layout.a_along ? 130 : 136, 264 + ragged, 198, 1, true, {256, 128, 1}, 8));
      all.push_back(product_case("matmul_tensor_small", "matmul_small_" + layout.name + "_" + type, layout, type, layout.a_along ? 70 : 72,
                                 72 + ragged, 40, 2, false, {64, 64, 1}, 4));
    }
  for (const std::string type : {"bf16", "bf16_f32"})
    for (const Layout& layout : {Layout{"any", true, false}, {"any", false, true}})
      all.push_back(product_case("matmul_tensor_small", "matmul_any_" + type, layout, type, 70, 67, 45, 2, layout.a_along, {64, 64, 1}, 4));
  return all;
}

}  // namespace ppengine::test
