// Batched matrix product: checks and the list of implementations.
#include <ppengine/ops/matmul.hpp>

#include <fmt/core.h>

#include <array>

#include <ppengine/base/error.hpp>
#include <ppengine/ops/detail/implementations.hpp>

namespace ppengine::ops {
namespace {

std::span<const Implementation<Matmul, MatmulSpec>> implementations() {
  static const std::array list{onednn_matmul, sycl_matmul};
  return list;
}

bool fits(const MatmulSpec& spec) {
  const Shape &a = spec.a.shape, &b = spec.b.shape, &c = spec.c.shape;
  const int rank = c.rank();
  if (rank < 2 || rank > 4 || a.rank() != rank || b.rank() != rank) return false;
  if (a[rank - 1] != b[rank - 2] || a[rank - 2] != c[rank - 2] || b[rank - 1] != c[rank - 1]) return false;
  for (int i = 0; i < rank - 2; ++i)
    if ((a[i] != 1 && a[i] != c[i]) || (b[i] != 1 && b[i] != c[i])) return false;
  return spec.a.type == spec.b.type;
}

void check(const MatmulSpec& spec) {
  if (!fits(spec))
    throw ConfigError(
        fmt::format("matmul: {} {} times {} {} does not give {}; shapes are [batch..,m,k], [batch..,k,n], [batch..,m,n] of one type",
                    name_of(spec.a.type), spec.a.shape.text(), name_of(spec.b.type), spec.b.shape.text(), spec.c.shape.text()));
}

}  // namespace

std::unique_ptr<Matmul> Matmul::make(Device& device, const MatmulSpec& spec) {
  check(spec);
  return make_first<Matmul, MatmulSpec>("matmul", implementations(), device, spec);
}

std::vector<Considered> Matmul::consider(const Device& device, const MatmulSpec& spec) {
  check(spec);
  return ops::consider<Matmul, MatmulSpec>(implementations(), device, spec);
}

}  // namespace ppengine::ops
